#include "compiler/spec/LayoutString.h"
#include "compiler/spec/Sections.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace sluice {

namespace {

/// Letters and bars that a string may come to.
constexpr size_t kMaxAtoms = kMaxLayers + kMaxStages;

/// A letter or a bar, and where in the string it is written.
struct Atom {
  char letter;
  uint32_t at;
};

/// Turns the text into letters, one by one.
class LayoutReader {
public:
  explicit LayoutReader(const Field &theField)
      : field(theField), text(theField.node.text) {}

  std::optional<LayoutString> read();

private:
  void fail(size_t offset, const std::string &message) {
    field.reader.error(place(offset), field.name() + ": " + message);
    ok = false;
  }
  SourceLocation place(size_t offset) const {
    SourceLocation where = field.node.where;
    where.column += field.node.lead + static_cast<uint32_t>(offset);
    return where;
  }
  void step();
  void unknown();
  void close();
  void repeat();
  void checkEnd(char letter, const char *what, bool isFirst);
  void checkOrder();
  LayoutString stages() const;

  /// The letters of a parenthesis that is open begin at `begin`.
  struct Group {
    size_t begin;
    size_t at;
  };

  const Field &field;
  std::string_view text;
  size_t at = 0;
  bool ok = true;
  std::vector<Atom> atoms;
  std::vector<Group> groups;
  /// Where what a `*` would repeat begins in `atoms`; none: there is nothing.
  std::optional<size_t> last;
};
} // namespace

void LayoutReader::step() {
  char c = text[at];
  switch (c) {
  case 'E':
  case 't':
  case 'm':
  case 'L':
  case '|':
    last = atoms.size();
    atoms.push_back({c, static_cast<uint32_t>(at++)});
    return;
  case '(':
    groups.push_back({atoms.size(), at++});
    last.reset();
    return;
  case ')':
    return close();
  case '*':
    return repeat();
  case ',':
  case ' ':
    ++at;
    last.reset();
    return;
  default:
    return unknown();
  }
}

/// Tells a run of characters that mean nothing in one go.
void LayoutReader::unknown() {
  constexpr size_t kShown = 20;
  size_t end = std::min(text.find_first_of("EtmL|()*, ", at), text.size());
  std::string run(text.substr(at, std::min(end - at, kShown)));
  fail(at, "'" + run + (end - at > kShown ? "...'" : "'") +
               " is none of E, t, m, L, |, ( ) and *n");
  at = end;
  last.reset();
}

void LayoutReader::close() {
  last.reset();
  if (groups.empty())
    return fail(at++, "this ) has no ( before it");
  last = groups.back().begin;
  groups.pop_back();
  ++at;
}

/// Repeats what stands before the `*`.
void LayoutReader::repeat() {
  size_t star = at++;
  llvm::StringRef digits =
      llvm::StringRef(text.data() + at, text.size() - at)
          .take_while([](char c) { return c >= '0' && c <= '9'; });
  at += digits.size();
  uint64_t count = kMaxAtoms + 1; // where there are more digits
  bool isNumber = !digits.empty();
  if (isNumber && digits.ltrim('0').size() < 10)
    digits.getAsInteger(10, count);
  if (!last)
    return fail(star, "this * follows nothing that it could repeat");
  if (!isNumber)
    return fail(star, "this * has no number behind it");
  if (count == 0)
    return fail(star, "this * repeats 0 times, must be at least once");
  size_t begin = *last, size = atoms.size() - begin;
  last.reset();
  if (size != 0 && count > (kMaxAtoms - begin) / size) {
    fail(star, "with this repetition there are more than " +
                   std::to_string(kMaxAtoms) + " layers and stages");
    at = text.size(); // what follows would be counted wrong
    groups.clear();
    return;
  }
  atoms.resize(begin + size * count); // grows, so all together is linear
  for (uint64_t copy = 1; copy < count; ++copy)
    std::copy_n(atoms.begin() + begin, size,
                atoms.begin() + begin + size * copy);
}

/// E and L stand exactly once, at the beginning and at the end.
void LayoutReader::checkEnd(char letter, const char *what, bool isFirst) {
  std::vector<const Atom *> found;
  for (const Atom &atom : atoms)
    if (atom.letter == letter)
      found.push_back(&atom);
  std::string name = std::string(what) + " " + letter;
  if (found.empty())
    return fail(isFirst ? 0 : text.size() - 1,
                "there is no " + name + "; the string must " +
                    (isFirst ? "begin" : "end") + " with it");
  if (found.size() > 1)
    return fail(found[isFirst ? 1 : 0]->at,
                "there are " + std::to_string(found.size()) + " of the " +
                    name + ", must be 1");
  if (found[0] != (isFirst ? &atoms.front() : &atoms.back()))
    fail(found[0]->at, "the " + name + " must be the " +
                           (isFirst ? "first" : "last") + " letter");
}

/// MTP layers follow the model's layers.
void LayoutReader::checkOrder() {
  const Atom *mtp = nullptr;
  for (const Atom &atom : atoms) {
    if (atom.letter == 'm' && !mtp)
      mtp = &atom;
    if (atom.letter == 't' && mtp) {
      fail(mtp->at, "this m has a t behind it, but the MTP layers follow the "
                    "model's layers");
      return;
    }
  }
}

LayoutString LayoutReader::stages() const {
  LayoutString layout;
  layout.where = place(0);
  layout.stages.push_back({});
  for (const Atom &atom : atoms) {
    LayoutStage &stage = layout.stages.back();
    if (atom.letter == '|')
      layout.stages.push_back({.bar = atom.at});
    else if (atom.letter == 't' && stage.layers++ == 0)
      stage.firstLayer = atom.at;
    else if (atom.letter == 'm' && stage.mtp++ == 0)
      stage.firstMtp = atom.at;
  }
  return layout;
}

std::optional<LayoutString> LayoutReader::read() {
  while (at < text.size()) {
    step();
    if (atoms.size() > kMaxAtoms) {
      fail(atoms.back().at, "there are more than " + std::to_string(kMaxAtoms) +
                                " layers and stages");
      return std::nullopt;
    }
  }
  for (const Group &group : groups)
    fail(group.at, "this ( has no ) behind it");
  if (!ok)
    return std::nullopt;
  checkEnd('E', "embedding", /*isFirst=*/true);
  checkEnd('L', "head and loss", /*isFirst=*/false);
  checkOrder();
  return ok ? std::optional(stages()) : std::nullopt;
}

bool looksLikeLayoutString(std::string_view text) {
  auto npos = std::string_view::npos;
  return text.find('|') != npos ||
         (text.find_first_of("EtmL") != npos &&
          text.find_first_not_of("EtmL|()*, 0123456789") == npos);
}

std::optional<LayoutString> readLayoutString(const Field &field) {
  return LayoutReader(field).read();
}

} // namespace sluice
