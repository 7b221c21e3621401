//===- compiler/spec/ConfigKeys.cpp - A config.json as a transformer ------===//
//
// The file is checked as JSON, then read as YAML, of which JSON is a part: so
// every value has its place, and its range is checked by the same rows as if it
// stood in model.transformer.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/ConfigFamilies.h"
#include "compiler/spec/Sections.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace sluice {

namespace {

std::string quoted(std::string_view text) {
  return "'" + escaped(text.substr(0, 200)) + "'";
}

/// Whether brackets nest deeper than a reader that calls itself may follow.
bool nestsTooDeep(std::string_view text) {
  unsigned depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString && c == '\\')
      ++i;
    else if (c == '"')
      inString = !inString;
    else if (!inString && (c == '[' || c == '{') && ++depth > kMaxYamlDepth)
      return true;
    else if (!inString && depth != 0 && (c == ']' || c == '}'))
      --depth;
  }
  return false;
}

/// `text` as JSON, after a report none.
std::optional<llvm::json::Value> parseJson(std::string_view text, uint32_t file,
                                           Reader &reader) {
  if (nestsTooDeep(text)) {
    reader.error({file, 1, 1}, "the config nests more than " +
                                   std::to_string(kMaxYamlDepth) + " deep");
    return std::nullopt;
  }
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (value)
    return std::optional(std::move(*value));
  // "[line:column, byte=offset]: what"
  std::string message = llvm::toString(value.takeError());
  SourceLocation where{file, 1, 1};
  std::sscanf(message.c_str(), "[%u:%u,", &where.line, &where.column);
  where.column = std::max(where.column, 1u);
  size_t what = message.find("]: ");
  reader.error(where,
               "the config is not JSON: " +
                   message.substr(what == std::string::npos ? 0 : what + 3));
  return std::nullopt;
}

/// The same JSON with as many bytes, without what YAML reads otherwise: tabs
/// between values, and characters that are escaped in two halves.
std::string asYaml(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  for (size_t at = 0; (at = text.find('\\', at)) != std::string::npos;
       at += 2) {
    std::string escape = llvm::StringRef(text).substr(at, 4).lower();
    if (escape >= "\\ud8" && escape <= "\\udf")
      text.replace(at + 2, 4, "0020");
  }
  return text;
}

const YamlNode *find(const YamlNode &map, std::string_view name) {
  for (const YamlEntry &entry : map.entries)
    if (entry.key == name)
      return &entry.value;
  return nullptr;
}

std::optional<uint64_t> wholeNumber(std::string_view text) {
  uint64_t value = 0;
  auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = code == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

/// Fills a transformer from the object of a config.
class Importer {
public:
  Importer(Reader &theReader, const Field &model, TransformerSpec &to)
      : reader(theReader), spec(model), shape(to) {}

  /// Finds the family and reads its fields. What is missing is told of `file`;
  /// `json` is the same as the tree, and knows what stood in quotes.
  void read(const YamlNode &root, const llvm::json::Value &json,
            SourceLocation file);

private:
  void duplicates(const YamlNode &map);
  const ConfigFamily *family(const YamlNode &root);
  void field(const YamlNode &map, const ConfigField &row,
             const ConfigFamily &family);
  void given(const YamlNode &map, std::string_view name, const YamlNode &value,
             const ConfigField &row);
  void set(std::string_view key, std::string_view name, YamlNode value);
  void fixed(const YamlNode &map, const ConfigFixed &row,
             const ConfigFamily &family);

  Reader &reader;
  const Field &spec;
  TransformerSpec &shape;
  const llvm::json::Object *object = nullptr;
  SourceLocation place;
};

void Importer::duplicates(const YamlNode &map) {
  std::vector<const YamlEntry *> entries;
  for (const YamlEntry &entry : map.entries)
    entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(),
                   [](auto *a, auto *b) { return a->key < b->key; });
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i]->key == entries[i - 1]->key)
      reader
          .error(entries[i]->where,
                 "duplicate field " + escaped(entries[i]->key))
          .note("first given here", entries[i - 1]->where);
}

const ConfigFamily *Importer::family(const YamlNode &root) {
  const YamlNode *type = find(root, "model_type");
  std::string known;
  for (const ConfigFamily &family : allConfigFamilies()) {
    if (type && type->text == family.type)
      return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.type);
  }
  Field shown{reader, type ? *type : root, place, "model_type"};
  (type ? reader.error(type->where, "model_type is " + shown.shown() +
                                        ", which is not known")
        : reader.error(place, "the config has no model_type"))
      .note("known are " + known)
      .note("model.transformer can describe others: it needs layers, hidden, "
            "heads, vocab and sequence, and ffn, kv_heads, head_dim, norm, "
            "position, bias, gated_ffn, tied_embeddings where they are not the "
            "defaults");
  return nullptr;
}

void Importer::set(std::string_view key, std::string_view name,
                   YamlNode value) {
  SourceLocation where = value.where;
  readTransformerKey({reader, value, where, std::string(name)}, key, shape);
}

void Importer::given(const YamlNode &map, std::string_view name,
                     const YamlNode &value, const ConfigField &row) {
  if (object && object->getString(name)) {
    reader.error(value.where, std::string(name) + " is a text, " +
                                  quoted(value.text.substr(0, 60)) +
                                  ", must be a number, true or false");
    return;
  }
  YamlNode node = value;
  std::optional<uint64_t> number = wholeNumber(node.text);
  if (number && row.add != 0 && *number <= kMaxTokens)
    node.text = std::to_string(*number + row.add);
  if (number && !row.over.empty()) {
    const YamlNode *over = find(map, row.over);
    std::optional<uint64_t> by = over ? wholeNumber(over->text) : std::nullopt;
    if (by && *by != 0 && *number % *by != 0) {
      reader.error(node.where, std::string(name) + " is " + node.text +
                                   ", not a multiple of the " +
                                   std::to_string(*by) + " of " +
                                   std::string(row.over));
      return;
    }
    if (by && *by != 0)
      node.text = std::to_string(*number / *by);
  }
  set(row.to, name, std::move(node));
}

void Importer::field(const YamlNode &map, const ConfigField &row,
                     const ConfigFamily &family) {
  std::string_view names = row.from;
  while (!names.empty()) {
    std::string_view name = names.substr(0, names.find('|'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const YamlNode *value = find(map, name);
    if (value && value->kind != YamlKind::Null)
      return given(map, name, *value, row);
  }
  if (row.otherwise == kNeeded) {
    std::string missing(row.from);
    if (size_t bar = missing.find('|'); bar != std::string::npos)
      missing.replace(bar, 1, " or ");
    reader.error(place, "the config has no " + missing + ", which model_type " +
                            std::string(family.type) + " needs");
  } else if (!row.otherwise.empty()) {
    YamlNode value;
    value.kind = YamlKind::Scalar;
    value.text = row.otherwise;
    value.where = place;
    set(row.to, row.from, std::move(value));
  }
}

/// A scalar, or "[]" for an empty list.
std::string plain(const YamlNode &node) {
  if (node.kind == YamlKind::List)
    return node.items.empty() ? "[]" : "a list";
  return node.kind == YamlKind::Map ? "a map" : node.text;
}

void Importer::fixed(const YamlNode &map, const ConfigFixed &row,
                     const ConfigFamily &family) {
  const YamlNode *value = find(map, row.from);
  if (!value || value->kind == YamlKind::Null)
    return;
  std::string only(row.only);
  if (only.starts_with('=')) {
    const YamlNode *other = find(map, row.only.substr(1));
    if (!other)
      return;
    only = plain(*other);
  }
  if (plain(*value) != only)
    reader.error(value->where, std::string(row.from) + " is " +
                                   escaped(plain(*value).substr(0, 60)) +
                                   ", but of model_type " +
                                   std::string(family.type) + " only " + only +
                                   " can be described");
}

void Importer::read(const YamlNode &root, const llvm::json::Value &json,
                    SourceLocation file) {
  place = file;
  object = json.getAsObject();
  if (root.kind != YamlKind::Map) {
    reader.error(place, "the config is not a JSON object");
    return;
  }
  duplicates(root);
  const ConfigFamily *found = family(root);
  if (!found)
    return;
  const YamlNode *map = &root;
  if (!found->section.empty()) {
    map = find(root, found->section);
    if (!map || map->kind != YamlKind::Map) {
      reader.error(place, "the config has no object " +
                              std::string(found->section) +
                              ", which model_type " + std::string(found->type) +
                              " needs");
      return;
    }
    place = map->where;
    object = object ? object->getObject(found->section) : nullptr;
    duplicates(*map);
    reader.warning(spec.where, "of a config of model_type " +
                                   std::string(found->type) + " only " +
                                   std::string(found->section) +
                                   " is taken: what reads images is not "
                                   "counted");
  }
  for (const ConfigTrait &trait : found->traits) {
    YamlNode value;
    value.kind = YamlKind::Scalar;
    value.text = trait.value;
    value.where = place;
    set(trait.to, trait.to, std::move(value));
  }
  for (std::span<const ConfigField> rows : found->fields)
    for (const ConfigField &row : rows)
      field(*map, row, *found);
  for (const ConfigFixed &row : found->fixed)
    fixed(*map, row, *found);
}

/// Puts what stands beside the config over what it says.
void override(const TransformerSpec &beside, TransformerSpec &shape) {
  auto take = [](const auto &from, auto &to) {
    if (from.given)
      to = from;
  };
  take(beside.sequence, shape.sequence);
  take(beside.dtype, shape.dtype);
  take(beside.flashAttention, shape.flashAttention);
  take(beside.dropout, shape.dropout);
  take(beside.mtpLayers, shape.mtpLayers);
}

} // namespace

std::optional<std::string> readBeside(const Located<std::string> &name,
                                      std::string_view specFile,
                                      std::string &path, Reader &reader) {
  llvm::SmallString<128> full(name.value);
  if (llvm::sys::path::is_relative(full)) {
    full = llvm::sys::path::parent_path(llvm::StringRef(specFile));
    llvm::sys::path::append(full, name.value);
  }
  path = full.str().str();
  auto fail = [&](const std::string &message) {
    reader.error(name.where, message);
    return std::nullopt;
  };
  llvm::sys::fs::file_status status;
  if (std::error_code error = llvm::sys::fs::status(full, status))
    return fail("cannot open " + quoted(path) + ": " + error.message());
  if (!llvm::sys::fs::is_regular_file(status))
    return fail(quoted(path) + " is not a file");
  if (status.getSize() > kMaxYamlBytes)
    return fail(quoted(path) + " has " + std::to_string(status.getSize()) +
                " bytes, more than the limit of " +
                std::to_string(kMaxYamlBytes));
  auto buffer = llvm::MemoryBuffer::getFile(full);
  if (!buffer)
    return fail("cannot open " + quoted(path) + ": " +
                buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

void readConfig(const Field &model, std::string_view specFile,
                ModelSpec &spec) {
  Reader &reader = model.reader;
  std::string path;
  std::optional<std::string> text =
      readBeside(spec.config, specFile, path, reader);
  if (!text)
    return;
  uint32_t file = reader.addSource(path, *text);
  std::optional<llvm::json::Value> json = parseJson(*text, file, reader);
  if (!json)
    return;
  std::optional<YamlNode> root = reader.parse(asYaml(*text), {file, 1, 1});
  if (!root)
    return;
  unsigned before = reader.errorCount();
  TransformerSpec &shape = spec.transformer.emplace();
  shape.where = spec.config.where;
  Field field{reader, model.node, spec.config.where, "model.config"};
  Importer(reader, field, shape).read(*root, *json, {file, 1, 1});
  override(spec.besideConfig, shape);
  if (reader.errorCount() == before)
    finishTransformer(field, shape);
}

} // namespace sluice
