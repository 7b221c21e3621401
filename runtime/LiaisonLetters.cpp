#include "runtime/LiaisonLetters.h"

#include <cstring>
#include <vector>

namespace sluice::runtime {

LetterWriter startLetter(LetterKind kind) {
  LetterWriter out;
  out.put(kind);
  return out;
}

void write(LetterWriter &out, const Status &status) {
  out.put(status.fault()).words(status.message());
}

Status readStatus(LetterReader &in) {
  const auto fault = in.get<Fault>();
  std::string message(in.words());
  switch (fault) {
  case Fault::None:
    return {};
  case Fault::Input:
    return Status::input(std::move(message));
  case Fault::Usage:
    return Status::usage(std::move(message));
  case Fault::Environment:
    break;
  }
  return Status::environment(std::move(message));
}

void write(LetterWriter &out, const StandingRow &row) {
  out.put(row.step)
      .words(row.standsAt)
      .words(row.line)
      .words(row.waitsFor)
      .put(row.idleSeconds)
      .put(row.inModule);
}

StandingRow readRow(LetterReader &in) {
  StandingRow row;
  row.step = in.get<uint64_t>();
  row.standsAt = in.words();
  row.line = in.words();
  row.waitsFor = in.words();
  row.idleSeconds = in.get<double>();
  row.inModule = in.get<bool>();
  return row;
}

template <typename T>
void write(LetterWriter &out, const std::vector<T> &values) {
  out.words({reinterpret_cast<const char *>(values.data()),
             values.size() * sizeof(T)});
}

template <typename T> static std::vector<T> readVector(LetterReader &in) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string_view bytes = in.words();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty())
    std::memcpy(static_cast<void *>(values.data()), bytes.data(),
                values.size() * sizeof(T));
  return values;
}

void write(LetterWriter &out, const RankReport &report) {
  out.put(report.arenaBytes).put(report.hostArenaBytes);
  write(out, report.stages);
  write(out, report.costs);
  write(out, report.times);
  write(out, report.flight);
}

RankReport readReport(LetterReader &in) {
  RankReport report;
  report.arenaBytes = in.get<Bytes>();
  report.hostArenaBytes = in.get<Bytes>();
  report.stages = readVector<Id>(in);
  report.costs = readVector<StageCostSums>(in);
  report.times = readVector<OpTime>(in);
  report.flight = readVector<TimelineSpan>(in);
  return report;
}

std::vector<HeldTensor> readOffer(LetterReader &in, Id from) {
  std::vector<HeldTensor> tensors;
  while (!in.atEnd()) {
    HeldTensor &tensor = tensors.emplace_back();
    tensor.rank = from;
    tensor.index = static_cast<uint32_t>(tensors.size() - 1);
    tensor.position = in.get<uint64_t>();
    tensor.bytes = in.get<Bytes>();
    tensor.name = in.words();
  }
  return tensors;
}

} // namespace sluice::runtime
