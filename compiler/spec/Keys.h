//===- compiler/spec/Keys.h - How the keys of a spec are read ------------===//
//
// A section of the spec is a struct and a table of its keys (see Sections.h).
// Everything that holds for all keys alike stands here: unknown and duplicate
// keys, keys that are refused by name, kinds and ranges of values, places.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SPEC_KEYS_H
#define SLUICE_COMPILER_SPEC_KEYS_H

#include "compiler/spec/Spec.h"
#include "compiler/spec/Yaml.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// What is gathered while a spec is read.
class Reader {
public:
  explicit Reader(Diagnostics &sink) : diagnostics(sink) {}

  /// Reports a fault. After kMaxFaults the rest is dropped, with a word.
  Diagnostic &error(SourceLocation where, std::string message);
  Diagnostic &warning(SourceLocation where, std::string message);

  /// Of another file that the spec names: adds it, and reads it as YAML.
  uint32_t addSource(std::string name, std::string text) {
    return diagnostics.addSource(std::move(name), std::move(text));
  }
  std::optional<YamlNode> parse(std::string_view text, SourceLocation origin) {
    return parseYaml(text, origin, diagnostics);
  }
  unsigned errorCount() const { return diagnostics.errorCount(); }

  /// Remembers the first time of each unit: `what` says what it is.
  void noteTime(TimeUnit unit, SourceLocation where, std::string what);
  /// The unit of the spec's times; reports a mixture of both with its places.
  TimeUnit finishTimes();

  /// Whether the keys of the section at `path` are still to be listed in a
  /// note: once in a row.
  bool listKeys(const std::string &path) {
    return std::exchange(listed, path) != path;
  }

  static constexpr unsigned kMaxFaults = 100;

private:
  struct TimePlace {
    SourceLocation where;
    std::string what;
  };
  Diagnostics &diagnostics;
  std::optional<TimePlace> units, seconds;
  std::string listed = "none yet";
  unsigned faults = 0;
  Diagnostic dropped{};
};

/// A value of the spec on its way into a struct. The functions that return an
/// optional report a fault where they return none.
struct Field {
  Reader &reader;
  const YamlNode &node;
  SourceLocation where; ///< of the value; of the key where that says more
  std::string path;     ///< "pipeline.ranks", "model.layers[0]"; "" at the top

  Field child(const YamlEntry &entry) const;
  Field item(size_t index) const;

  /// The path, or what the top is called.
  std::string name() const { return path.empty() ? "the spec" : path; }
  /// The value as a message shows it: a short scalar, "a list", "a map".
  std::string shown() const;
  /// "<path> is <value>, must be <must>".
  Diagnostic &mismatch(const std::string &must) const;
  void unknownKey(const YamlEntry &entry,
                  const std::vector<std::string_view> &known) const;
  void missingKey(std::string_view key, std::string_view only) const;
  /// Takes a value that has only one supported setting.
  void expectOnly(std::string_view only) const;
  bool expectMap() const;
  bool expectList() const;

  std::optional<std::string_view> scalar(const std::string &must) const;
  std::optional<uint64_t> count(uint64_t low, uint64_t high) const;
  std::optional<std::vector<uint32_t>> counts(uint64_t low,
                                              uint64_t high) const;
  std::optional<bool> flag() const;
  std::optional<std::string> text() const;
  std::optional<double> number(double high) const; ///< over 0, up to high
  std::optional<Ticks> time() const;
  std::optional<Bytes> bytes() const;
  /// Per second ("50GB/s"), or per abstract unit of time ("100").
  std::optional<Bytes> bandwidth() const;
  std::optional<double> flops() const;

  template <typename T> void set(Located<T> &to, T value) const {
    to.value = std::move(value);
    to.where = where;
    to.given = true;
  }

private:
  std::optional<std::string_view> numeral(const std::string &must) const;
};

/// A row of a section's table.
template <typename Section> struct Key {
  std::string_view name;
  /// Reads the value into the section; none where there is nothing to keep:
  /// the key is refused by name, or has `only` one setting.
  void (*read)(const Field &, Section &) = nullptr;
  bool required = false;
  /// The one value that is supported so far.
  std::string_view only = {};
};

template <typename Section>
void readKey(const Field &field, const Key<Section> &key, Section &section) {
  if (!key.only.empty())
    field.expectOnly(key.only);
  else if (key.read)
    key.read(field, section);
  else
    field.reader.error(field.where, field.name() + " is not supported yet");
}

/// Reads a map as `section`, key by key. Linear in entries times keys.
template <typename Section, size_t N>
void readSection(const Field &field, const Key<Section> (&keys)[N],
                 Section &section) {
  if (!field.expectMap())
    return;
  const YamlEntry *seen[N] = {};
  for (const YamlEntry &entry : field.node.entries) {
    size_t index = 0;
    while (index < N && keys[index].name != entry.key)
      ++index;
    if (index == N) {
      std::vector<std::string_view> known;
      for (const Key<Section> &key : keys)
        known.push_back(key.name);
      field.unknownKey(entry, known);
    } else if (seen[index]) {
      field.reader
          .error(entry.where, "duplicate key " + field.child(entry).path)
          .note("first given here", seen[index]->where);
    } else {
      seen[index] = &entry;
      readKey(field.child(entry), keys[index], section);
    }
  }
  for (size_t index = 0; index < N; ++index)
    if (keys[index].required && !seen[index])
      field.missingKey(keys[index].name, keys[index].only);
}

//===----------------------------------------------------------------------===//
// Readers for the tables, named by the member that they fill
//===----------------------------------------------------------------------===//

template <typename Member> struct LocatedMember;
template <typename S, typename T> struct LocatedMember<Located<T> S::*> {
  using Section = S;
  using Value = T;
};
template <auto Member>
using SectionOf = typename LocatedMember<decltype(Member)>::Section;
template <auto Member>
using ValueOf = typename LocatedMember<decltype(Member)>::Value;

/// Stores `value` if there is one.
template <auto Member, typename T>
void store(const Field &field, SectionOf<Member> &section,
           std::optional<T> value) {
  if (value)
    field.set(section.*Member, static_cast<ValueOf<Member>>(std::move(*value)));
}

template <auto Member, uint64_t Low, uint64_t High>
void count(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.count(Low, High));
}
template <auto Member>
void flag(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.flag());
}
template <auto Member>
void text(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.text());
}
template <auto Member>
void time(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.time());
}
template <auto Member>
void bytes(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.bytes());
}
template <auto Member>
void bandwidth(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.bandwidth());
}
template <auto Member>
void flops(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.flops());
}
template <auto Member, unsigned High>
void number(const Field &field, SectionOf<Member> &section) {
  store<Member>(field, section, field.number(High));
}

/// One of `Words`, an array of Word.
template <auto Member, const auto &Words>
void word(const Field &field, SectionOf<Member> &section) {
  std::string must;
  for (const auto &word : Words)
    must += (must.empty() ? "" : ", ") + std::string(word.text);
  must = "one of " + must;
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return;
  for (const auto &word : Words)
    if (word.text == *text)
      return field.set(section.*Member, ValueOf<Member>(word.value));
  field.mismatch(must);
}

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_KEYS_H
