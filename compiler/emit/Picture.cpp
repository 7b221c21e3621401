#include "compiler/emit/Emit.h"
#include "compiler/emit/Tones.h"

#include "ir/Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace sluice {
namespace {

// All in pixels. The width of the plot is fixed, so that time per pixel depends
// on the makespan alone.
constexpr double kLeft = 76, kRight = 28, kPlot = 1200;
constexpr double kTop = 64, kAxis = 34, kLegendLine = 19;
constexpr double kTallestRow = 28, kLowestRow = 4, kRowsTogether = 1100;
constexpr double kTallestRowOfPairs = 40;
constexpr double kNarrowestLabel = 7, kLowestLabel = 9.5;
constexpr size_t kMostCells = 200'000;
constexpr const char *kIdleColor = "#eceff1";

/// A length with at most two decimals.
struct Px {
  double value;
};
llvm::raw_ostream &operator<<(llvm::raw_ostream &out, Px length) {
  int64_t hundredths = std::llround(length.value * 100);
  if (hundredths < 0)
    out << '-';
  hundredths = std::abs(hundredths);
  out << hundredths / 100;
  if (hundredths % 100 == 0)
    return out;
  out << '.' << hundredths % 100 / 10;
  if (hundredths % 10 != 0)
    out << hundredths % 10;
  return out;
}

/// How a cell is filled: by operation, in the tone of its stage.
struct Fill {
  Op op;
  uint8_t tone;
  bool operator<(const Fill &other) const {
    return std::pair(op, tone) < std::pair(other.op, other.tone);
  }
};

/// Where a cell stands in its row: of a pair that runs together, each has half
/// of the height.
enum class Part : uint8_t { Whole, Upper, Lower };

std::string hex(Rgb rgb) {
  return llvm::formatv("#{0:x-2}{1:x-2}{2:x-2}", rgb.red, rgb.green, rgb.blue);
}

const char *textColor(Rgb rgb) {
  unsigned brightness =
      (299 * rgb.red + 587 * rgb.green + 114 * rgb.blue) / 1000;
  return brightness > 150 ? "#1a1a1a" : "#fff";
}

std::string xml(llvm::StringRef text) {
  std::string result;
  llvm::raw_string_ostream out(result);
  llvm::printHTMLEscaped(escaped(text), out);
  return result;
}

/// "BackwardInput" -> "backward input".
std::string words(std::string_view name) {
  std::string text;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z' && !text.empty())
      text += ' ';
    text += llvm::toLower(c);
  }
  return text;
}

std::string legendOf(Op op) {
  switch (info(op).payload) {
  case Payload::Activation:
    return "communication: activations";
  case Payload::Gradient:
    return "communication: gradients";
  case Payload::WeightGradients:
    return "communication: weight gradients";
  case Payload::TiedGradients:
    return "communication: gradients of a tied table";
  case Payload::Norms:
    return "communication: norms of gradients";
  case Payload::Parameters:
    return "communication: parameters";
  case Payload::None:
    break;
  }
  return std::string(info(op).text) + ": " + words(info(op).name);
}

/// 1, 2 or 5 times a power of ten, so that at most `most` steps fill `range`.
Ticks axisStep(Ticks range, Ticks most) {
  Ticks step = 1;
  for (unsigned i = 0; range / step > most; ++i)
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

/// Where a row of cells stands.
struct Band {
  double y;
  double height;

  bool hasRoomForLabels() const { return height >= kLowestLabel; }
  Band of(Part part) const {
    constexpr double kGap = 0.6;
    double half = (height - kGap) / 2;
    switch (part) {
    case Part::Whole:
      return *this;
    case Part::Upper:
      return {y, half};
    case Part::Lower:
      return {y + half + kGap, half};
    }
    return *this;
  }
};

class Picture {
public:
  Picture(const Timeline &timeline, llvm::raw_ostream &out,
          const PictureOptions &options);

  void draw();

private:
  struct Cell {
    Ticks start, end; ///< from the start of the picture
    Fill fill;
    Id stage, microbatch;
    Part part = Part::Whole;
    /// What of the rank's time counts as this one's.
    double share() const { return part == Part::Whole ? 1 : 0.5; }
  };
  using Cells = std::vector<Cell>;
  using Paths = std::map<Fill, std::string>;

  /// An entry of the legend, from the place of the first.
  struct Entry {
    double x, y;
    std::string color, text;
  };

  void sortIntoRows();
  void findPairs(Cells &row);
  Rgb colorOf(Fill fill) const { return tones.color(fill.op, fill.tone); }
  double across(Ticks time) const {
    return static_cast<double>(time) * kPlot / static_cast<double>(scale);
  }
  double x(Ticks time) const { return kLeft + across(time); }
  void head();
  std::string note() const;
  void placeLegend();
  void legend();
  void background();
  void row(Id rank);
  void cells(const Cells &row, Band band, bool labels);
  void labelled(const Cell &cell, Band band);
  void stacked(const Cells &row, Band band);
  void strokes(const Paths &byFill, double thickness);
  double busyFraction() const;
  double cellHeight() const {
    return rowHeight - (rowHeight > 12 ? 4 : rowHeight / 6);
  }
  double rowY(Id rank) const { return top + rank * rowHeight; }
  size_t mostCells() const;

  const Timeline &timeline;
  llvm::raw_ostream &out;
  Tones tones;
  Ticks first = 0, makespan = 0, scale = 1;
  double rowHeight = 0, height = 0, top = kTop;
  bool messages = false, lighter = false, pairs = false;
  std::vector<Cells> compute, message; ///< per rank
  std::array<bool, kOpCount> used{};
  std::vector<Entry> entries;
};

Picture::Picture(const Timeline &timeline, llvm::raw_ostream &out,
                 const PictureOptions &options)
    : timeline(timeline), out(out), tones(timeline),
      makespan(makespanOf(timeline)) {
  scale = std::max<Ticks>({options.scale, makespan, 1});
  if (!timeline.spans.empty())
    first = timeline.spans.front().start;
  for (const TimelineSpan &span : timeline.spans)
    first = std::min(first, span.start);
  sortIntoRows();
  uint32_t ranks = std::max(1u, timeline.ranks);
  rowHeight = std::clamp(kRowsTogether / ranks, kLowestRow,
                         pairs ? kTallestRowOfPairs : kTallestRow);
  placeLegend();
  height = top + ranks * rowHeight + kAxis;
}

/// A rank computes one thing at a time, so what has the same time is a pair:
/// the forward above, the backward below.
void Picture::findPairs(Cells &row) {
  for (size_t i = 0; i + 1 < row.size(); ++i) {
    Cell &one = row[i], &other = row[i + 1];
    if (one.start != other.start || one.end != other.end)
      continue;
    bool opens = info(one.fill.op).flight == Flight::Opens ||
                 info(other.fill.op).flight != Flight::Opens;
    one.part = opens ? Part::Upper : Part::Lower;
    other.part = opens ? Part::Lower : Part::Upper;
    pairs = true;
    ++i;
  }
}

void Picture::sortIntoRows() {
  compute.resize(timeline.ranks);
  message.resize(timeline.ranks);
  for (const TimelineSpan &span : timeline.spans) {
    if (span.end <= span.start || span.rank >= timeline.ranks)
      continue;
    bool isMessageSpan = isCommunication(span.op) || isCopy(span.op);
    uint8_t tone = isCompute(span.op) ? tones.of(span) : uint8_t(0);
    messages |= isMessageSpan;
    lighter |= tone != 0;
    // Both ends of a message have the same colour.
    used[static_cast<unsigned>(isReceive(span.op) ? info(span.op).mate
                                                  : span.op)] = true;
    (isMessageSpan ? message : compute)[span.rank].push_back(
        {span.start - first,
         span.end - first,
         {span.op, tone},
         span.stage,
         span.microbatch});
  }
  for (Cells &row : compute)
    findPairs(row);
}

size_t Picture::mostCells() const {
  return std::clamp<size_t>(kMostCells / std::max(1u, timeline.ranks), 32,
                            static_cast<size_t>(kPlot));
}

double Picture::busyFraction() const {
  double busy = 0;
  for (const Cells &row : compute)
    for (const Cell &cell : row)
      if (isCompute(cell.fill.op))
        busy += static_cast<double>(cell.end - cell.start) * cell.share();
  double possible = static_cast<double>(makespan) * timeline.ranks;
  return possible > 0 ? busy / possible : 0;
}

void Picture::head() {
  double width = kLeft + kPlot + kRight;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << Px{width}
      << "\" height=\"" << Px{height} << "\" viewBox=\"0 0 " << Px{width} << ' '
      << Px{height}
      << "\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      << "<text x=\"" << Px{kLeft} << "\" y=\"22\" font-size=\"16\" "
      << "font-weight=\"bold\" fill=\"#1a1a1a\">" << xml(timeline.title)
      << "</text>\n"
      << "<text x=\"" << Px{kLeft + kPlot}
      << "\" y=\"22\" font-size=\"14\" text-anchor=\"end\" fill=\"#1a1a1a\">"
      << "makespan " << formatTime(makespan, timeline.unit) << ", bubble "
      << llvm::formatv("{0:F1}", 100 * (1 - busyFraction())) << " %</text>\n";
}

std::string Picture::note() const {
  std::string text;
  auto add = [&](bool applies, const char *words) {
    if (applies)
      text += (text.empty() ? "" : " · ") + std::string(words);
  };
  bool crowded = llvm::any_of(
      compute, [&](const Cells &row) { return row.size() > mostCells(); });
  add(lighter && !tones.hasCopies(), "lighter: later stages of the rank");
  add(lighter && tones.hasCopies(), "lighter: second copy of the stages");
  add(crowded, "height: share of the time of its place");
  add(pairs && !crowded, "half as high: a pair that runs together");
  return text;
}

/// Lays out the legend, in as many lines as it needs.
void Picture::placeLegend() {
  double at = kLeft, line = 0;
  auto entry = [&](const std::string &color, const std::string &words) {
    double box = color.empty() ? 0 : 18;
    double width = box + 6.4 * static_cast<double>(words.size());
    if (at > kLeft && at + width > kLeft + kPlot + kRight) {
      at = kLeft;
      line += kLegendLine;
    }
    entries.push_back({at, line, color, words});
    at += width + 16;
  };
  for (unsigned i = 0; i < kOpCount; ++i)
    if (used[i])
      entry(std::string(kOps[i].color), legendOf(static_cast<Op>(i)));
  entry(kIdleColor, "idle");
  if (std::string text = note(); !text.empty())
    entry("", text);
  top = kTop + line;
}

void Picture::legend() {
  for (const Entry &entry : entries) {
    double box = entry.color.empty() ? 0 : 18;
    if (box != 0)
      out << "<rect x=\"" << Px{entry.x} << "\" y=\"" << Px{entry.y + 36}
          << "\" width=\"13\" height=\"13\" rx=\"2\" fill=\"" << entry.color
          << "\"/>";
    out << "<text x=\"" << Px{entry.x + box} << "\" y=\"" << Px{entry.y + 47}
        << "\" fill=\"#444\">" << entry.text << "</text>\n";
  }
}

/// Rows without work, and behind the work the lines of the time axis.
void Picture::background() {
  for (Id rank = 0; rank < timeline.ranks; ++rank)
    out << "<rect x=\"" << Px{kLeft} << "\" y=\"" << Px{rowY(rank)}
        << "\" width=\"" << Px{across(makespan)} << "\" height=\""
        << Px{cellHeight()} << "\" fill=\"" << kIdleColor << "\"/>\n";
  double bottom = rowY(timeline.ranks);
  Ticks step = axisStep(scale, 12);
  out << "<path stroke=\"#cfd8dc\" fill=\"none\" d=\"";
  for (Ticks time = 0; time <= scale; time += step)
    out << 'M' << Px{x(time)} << ' ' << Px{top} << 'V' << Px{bottom + 5};
  out << "\"/>\n<g fill=\"#444\" font-size=\"11\" text-anchor=\"middle\">\n";
  for (Ticks time = 0; time <= scale; time += step)
    out << "<text x=\"" << Px{x(time)} << "\" y=\"" << Px{bottom + 18} << "\">"
        << formatTime(time, timeline.unit) << "</text>\n";
  out << "</g>\n";
}

void Picture::labelled(const Cell &cell, Band band) {
  double left = x(cell.start), width = across(cell.end - cell.start);
  Rgb color = colorOf(cell.fill);
  out << "<rect x=\"" << Px{left} << "\" y=\"" << Px{band.y} << "\" width=\""
      << Px{width - 0.6} << "\" height=\"" << Px{band.height} << "\" fill=\""
      << hex(color) << "\"><title>"
      << opName(cell.fill.op, cell.stage, cell.microbatch) << ": "
      << formatTime(cell.start, timeline.unit) << " to "
      << formatTime(cell.end, timeline.unit) << "</title></rect>";
  if (cell.microbatch != kNone) {
    std::string label = std::to_string(cell.microbatch);
    double size =
        std::min({12.0, band.height - 4,
                  (width - 1.5) / 0.58 / static_cast<double>(label.size())});
    if (size >= 5.5)
      out << "<text x=\"" << Px{left + (width - 0.6) / 2} << "\" y=\""
          << Px{band.y + band.height / 2 + size * 0.36} << "\" font-size=\""
          << Px{size} << "\" fill=\"" << textColor(color) << "\">" << label
          << "</text>";
  }
  out << '\n';
}

/// A rectangle as part of a filled path.
void addTo(std::string &path, double left, double top, double width,
           double height) {
  llvm::raw_string_ostream text(path);
  text << 'M' << Px{left} << ' ' << Px{top} << 'h' << Px{width} << 'v'
       << Px{height} << 'h' << Px{-width} << 'z';
}

/// A cell is a short thick line, which takes half the text of a rectangle.
void Picture::strokes(const Paths &byFill, double thickness) {
  for (const auto &[fill, path] : byFill)
    out << "<path stroke=\"" << hex(colorOf(fill)) << "\" stroke-width=\""
        << Px{thickness} << "\" fill=\"none\" d=\"" << path << "\"/>\n";
}

/// More cells than pixels: columns that show by height what share of their
/// time each operation has.
void Picture::stacked(const Cells &row, Band band) {
  size_t columns = mostCells() / 2;
  std::vector<std::map<Fill, double>> shares(columns);
  double width = kPlot / static_cast<double>(columns);
  for (const Cell &cell : row) {
    double from = across(cell.start) / width, to = across(cell.end) / width;
    size_t last = std::min(columns - 1, static_cast<size_t>(to));
    for (size_t c = std::min(last, static_cast<size_t>(from)); c <= last; ++c) {
      double column = static_cast<double>(c);
      shares[c][cell.fill] +=
          std::max(0.0, std::min(to, column + 1) - std::max(from, column)) *
          cell.share();
    }
  }
  Paths byFill;
  for (size_t c = 0; c < columns; ++c) {
    double bottom = band.y + band.height, filled = 0;
    for (auto [fill, share] : shares[c]) {
      double part = std::min(share, 1 - filled) * band.height;
      filled = std::min(1.0, filled + share);
      if (part < 0.05)
        continue;
      bottom -= part;
      addTo(byFill[fill], kLeft + static_cast<double>(c) * width, bottom, width,
            part);
    }
  }
  for (const auto &[fill, path] : byFill)
    out << "<path fill=\"" << hex(colorOf(fill)) << "\" d=\"" << path
        << "\"/>\n";
}

void Picture::cells(const Cells &row, Band band, bool labels) {
  if (row.size() > mostCells())
    return stacked(row, band);
  Paths whole, halves;
  for (const Cell &cell : row) {
    Band own = band.of(cell.part);
    double width = across(cell.end - cell.start);
    if (labels && own.hasRoomForLabels() && width >= kNarrowestLabel) {
      labelled(cell, own);
      continue;
    }
    Paths &paths = cell.part == Part::Whole ? whole : halves;
    llvm::raw_string_ostream text(paths[cell.fill]);
    text << 'M' << Px{x(cell.start)} << ' ' << Px{own.y + own.height / 2} << 'h'
         << Px{width >= 3 ? width - 0.5 : std::max(width, 0.05)};
  }
  strokes(whole, band.height);
  strokes(halves, band.of(Part::Upper).height);
}

/// Compute above, messages in a strip below.
void Picture::row(Id rank) {
  double y = rowY(rank), inner = cellHeight();
  double strip = messages ? inner / 4 : 0;
  // Where rows are too low for every label, every n-th is there.
  auto every = static_cast<Id>(std::ceil(11 / rowHeight));
  if (rank % every == 0)
    out << "<text x=\"" << Px{kLeft - 8} << "\" y=\"" << Px{y + inner / 2 + 4}
        << "\" text-anchor=\"end\" fill=\"#1a1a1a\" font-size=\""
        << Px{std::min(12.0, std::max(9.0, inner))} << "\">rank " << rank
        << "</text>\n";
  out << "<g text-anchor=\"middle\">\n";
  double computeHeight = inner - strip;
  cells(compute[rank], {y, computeHeight}, true);
  if (!message[rank].empty())
    cells(message[rank], {y + computeHeight, strip}, false);
  out << "</g>\n";
}

void Picture::draw() {
  head();
  legend();
  background();
  for (Id rank = 0; rank < timeline.ranks; ++rank)
    row(rank);
  out << "</svg>\n";
}

} // namespace

void emitSvg(const Timeline &timeline, llvm::raw_ostream &out,
             const PictureOptions &options) {
  Picture(timeline, out, options).draw();
}

void emitHtml(const Timeline &timeline, const Report &report,
              llvm::raw_ostream &out, const PictureOptions &options) {
  std::string text;
  llvm::raw_string_ostream textOut(text);
  emitReportText(report, textOut);
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
      << "<meta charset=\"utf-8\">\n<title>" << xml(timeline.title)
      << "</title>\n<style>\n"
      << "body { font-family: Helvetica, Arial, sans-serif; margin: 24px; }\n"
      << "svg { max-width: 100%; height: auto; }\n"
      << "pre { font-size: 13px; line-height: 1.4; overflow-x: auto; }\n"
      << "</style>\n</head>\n<body>\n";
  emitSvg(timeline, out, options);
  out << "<pre>\n";
  llvm::printHTMLEscaped(text, out);
  out << "</pre>\n</body>\n</html>\n";
}

} // namespace sluice
