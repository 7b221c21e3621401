#include "compiler/spec/Parser.h"

#include "compiler/spec/RunSection.h"
#include "compiler/spec/Sections.h"
#include "compiler/spec/Yaml.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>

namespace sluice {

namespace {

/// One override while it is applied to the tree.
struct Setting {
  const Override &source;
  SourceLocation where;
  Diagnostics &diagnostics;

  YamlNode *fail(const std::string &message) const {
    diagnostics.error(where, message);
    return nullptr;
  }
};

} // namespace

/// The value of `key`, made if it is not there. The `last` key of a setting
/// is given by it, wherever it stood before.
static YamlNode *stepIntoMap(YamlNode &node, llvm::StringRef key, bool last,
                             const Setting &setting) {
  auto named = [&](const YamlEntry &entry) { return entry.key == key; };
  auto found = std::find_if(node.entries.begin(), node.entries.end(), named);
  if (found == node.entries.end())
    found = node.entries.insert(found, {key.str(), setting.where, {}});
  if (last)
    found->where = setting.where;
  return &found->value;
}

/// The value below `node` that `key` names, made if it is not there; null after
/// a report.
static YamlNode *stepInto(YamlNode &node, llvm::StringRef key,
                          llvm::StringRef path, bool last,
                          const Setting &setting) {
  std::string name = path.empty() ? "the spec" : path.str();
  switch (node.kind) {
  case YamlKind::Null:
    node.kind = YamlKind::Map;
    node.where = setting.where;
    [[fallthrough]];
  case YamlKind::Map:
    return stepIntoMap(node, key, last, setting);
  case YamlKind::List: {
    size_t index = 0;
    if (!key.getAsInteger(10, index) && index < node.items.size())
      return &node.items[index];
    return setting.fail(name + " is a list of " +
                        std::to_string(node.items.size()) +
                        ", there is no entry " + key.str());
  }
  case YamlKind::Scalar:
    return setting.fail(name + " is " + node.text.substr(0, 60) +
                        ", there is no " + key.str() + " in it");
  }
  return nullptr;
}

static void applyOverride(YamlNode &root, YamlNode value,
                          const Setting &setting) {
  llvm::SmallVector<llvm::StringRef> keys;
  llvm::StringRef path = setting.source.key;
  path.split(keys, '.');
  if (llvm::is_contained(keys, "") || keys.size() > kMaxYamlDepth) {
    setting.fail("the key of an override must be names with single dots "
                 "between them, as in pipeline.ranks=4");
    return;
  }
  YamlNode *node = &root;
  for (llvm::StringRef key : keys) {
    size_t before = key.data() - path.data();
    node = stepInto(*node, key, path.take_front(before ? before - 1 : 0),
                    key.end() == path.end(), setting);
    if (!node)
      return;
  }
  *node = std::move(value);
}

/// Parses all overrides, and applies them if there is a tree.
static void applyOverrides(std::optional<YamlNode> &root,
                           const std::vector<Override> &overrides,
                           Diagnostics &diagnostics) {
  for (const Override &override : overrides) {
    uint32_t file =
        diagnostics.addSource("--set", override.key + "=" + override.value);
    SourceLocation origin{file, 1,
                          static_cast<uint32_t>(override.key.size() + 2)};
    std::optional<YamlNode> value =
        parseYaml(override.value, origin, diagnostics);
    if (value && value->kind == YamlKind::Null)
      value->where = origin; // nothing of the text has a place of its own
    if (root && value)
      applyOverride(*root, std::move(*value),
                    {override, {file, 1, 1}, diagnostics});
  }
}

/// Name of the file without folders and ending.
static std::string stemOf(const std::string &file) {
  if (file == "-")
    return "stdin";
  llvm::StringRef name = file;
  name = name.substr(name.find_last_of('/') + 1);
  size_t dot = name.find_last_of('.');
  return (dot == 0 ? name : name.substr(0, dot)).str();
}

std::optional<Spec> parseSpec(std::string_view text, const std::string &file,
                              const std::vector<Override> &overrides,
                              Diagnostics &diagnostics) {
  unsigned errorsBefore = diagnostics.errorCount();
  if (text.substr(0, 3) == "\xef\xbb\xbf") // a byte order mark
    text.remove_prefix(3);
  uint32_t source =
      diagnostics.addSource(file, std::string(text.substr(0, kMaxYamlBytes)));
  Spec spec;
  spec.file = file;
  spec.model.name.value = stemOf(file);
  std::optional<YamlNode> root = parseYaml(text, {source, 1, 1}, diagnostics);
  applyOverrides(root, overrides, diagnostics);
  if (root) {
    Reader reader(diagnostics);
    readSpec({reader, *root, {source, 0, 0}, ""}, spec);
  }
  if (diagnostics.errorCount() != errorsBefore)
    return std::nullopt;
  return spec;
}

bool changePipeline(Spec &spec, const std::vector<Override> &settings,
                    Diagnostics &diagnostics) {
  unsigned errorsBefore = diagnostics.errorCount();
  std::optional<YamlNode> root(YamlNode{});
  root->kind = YamlKind::Map;
  applyOverrides(root, settings, diagnostics);
  Reader reader(diagnostics);
  readPipeline({reader, *root, spec.pipeline.where, "pipeline"}, spec);
  return diagnostics.errorCount() == errorsBefore;
}

std::optional<RunSpec> parseRunOverrides(const std::vector<Override> &overrides,
                                         Diagnostics &diagnostics) {
  unsigned errorsBefore = diagnostics.errorCount();
  std::optional<YamlNode> root(YamlNode{});
  applyOverrides(root, overrides, diagnostics);
  Reader reader(diagnostics);
  RunSpec run;
  for (const YamlEntry &entry : root->entries)
    readRun({reader, entry.value, entry.where, entry.key}, run);
  if (diagnostics.errorCount() != errorsBefore)
    return std::nullopt;
  return run;
}

} // namespace sluice
