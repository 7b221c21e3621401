#include "compiler/spec/Yaml.h"

#include "llvm/Support/ConvertUTF.h"
#include <algorithm>
#include <sstream>
#include <utility>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace sluice {

namespace {

/// What stops the reading of a text: thrown out of yaml-cpp's callbacks, caught
/// in parseYaml.
struct YamlFault {
  SourceLocation where;
  std::string message;
};

/// Builds the tree from yaml-cpp's events.
class TreeBuilder final : public YAML::EventHandler {
public:
  explicit TreeBuilder(SourceLocation start) : origin(start) {}

  SourceLocation place(const YAML::Mark &mark) const {
    if (mark.is_null())
      return {origin.file, 0, 0};
    auto line = static_cast<uint32_t>(mark.line);
    auto column = static_cast<uint32_t>(mark.column);
    return {origin.file, origin.line + line,
            column + (line == 0 ? origin.column : 1)};
  }
  YamlNode take() { return std::move(root); }

  void OnDocumentStart(const YAML::Mark &mark) override {
    if (documents++ != 0)
      throw YamlFault{place(mark), "a second document begins here, but a spec "
                                   "is one document"};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    add(make(YamlKind::Null, mark), anchor);
  }
  void OnAlias(const YAML::Mark &mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark &mark, const std::string &tag,
                YAML::anchor_t anchor, const std::string &value) override;
  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlKind::List, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(YamlKind::Map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

private:
  /// A list or map whose end has not come yet.
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor;
    bool keyRead = false; ///< the last entry waits for its value
  };

  YamlNode make(YamlKind kind, const YAML::Mark &mark) const {
    YamlNode node;
    node.kind = kind;
    node.where = place(mark);
    return node;
  }
  void checkTag(const YAML::Mark &mark, const std::string &tag) const;
  void open(YamlKind kind, const YAML::Mark &mark, const std::string &tag,
            YAML::anchor_t anchor);
  void close();
  void add(YamlNode node, YAML::anchor_t anchor);
  void attach(YamlNode node);
  void spend(uint64_t cost, SourceLocation where);

  SourceLocation origin;
  YamlNode root;
  std::vector<Open> stack;
  std::vector<std::optional<YamlNode>> anchors; ///< by number, once complete
  uint64_t spent = 0;
  unsigned documents = 0;
};

void TreeBuilder::spend(uint64_t cost, SourceLocation where) {
  spent += cost;
  if (spent > kMaxYamlCost)
    throw YamlFault{where, "the spec has more than " +
                               std::to_string(kMaxYamlCost) +
                               " values, aliases counted in full"};
}

void TreeBuilder::checkTag(const YAML::Mark &mark,
                           const std::string &tag) const {
  if (!tag.empty() && tag != "?" && tag != "!")
    throw YamlFault{place(mark), "tag " + tag.substr(0, 64) +
                                     " is not supported; write the value "
                                     "without it"};
}

void TreeBuilder::OnAlias(const YAML::Mark &mark, YAML::anchor_t anchor) {
  if (anchor >= anchors.size() || !anchors[anchor])
    throw YamlFault{place(mark), "this alias stands within what it refers to"};
  spend(anchors[anchor]->cost, place(mark));
  YamlNode copy = *anchors[anchor];
  copy.where = place(mark);
  attach(std::move(copy));
}

void TreeBuilder::OnScalar(const YAML::Mark &mark, const std::string &tag,
                           YAML::anchor_t anchor, const std::string &value) {
  checkTag(mark, tag);
  YamlNode node = make(YamlKind::Scalar, mark);
  node.text = value;
  node.lead = tag == "!"; // quoted
  node.cost = 1 + value.size() / 64;
  add(std::move(node), anchor);
}

void TreeBuilder::open(YamlKind kind, const YAML::Mark &mark,
                       const std::string &tag, YAML::anchor_t anchor) {
  checkTag(mark, tag);
  if (stack.size() >= kMaxYamlDepth)
    throw YamlFault{place(mark), "nesting is deeper than " +
                                     std::to_string(kMaxYamlDepth) + " levels"};
  stack.push_back({make(kind, mark), anchor});
}

void TreeBuilder::close() {
  Open done = std::move(stack.back());
  stack.pop_back();
  add(std::move(done.node), done.anchor);
}

/// Takes a complete node: remembers it under its anchor and puts it in place.
void TreeBuilder::add(YamlNode node, YAML::anchor_t anchor) {
  bool nested = node.kind == YamlKind::List || node.kind == YamlKind::Map;
  spend(nested ? 1 : node.cost, node.where);
  if (anchor != YAML::NullAnchor) {
    spend(node.cost, node.where); // the copy
    anchors.resize(std::max<size_t>(anchors.size(), anchor + 1));
    anchors[anchor] = node;
  }
  attach(std::move(node));
}

void TreeBuilder::attach(YamlNode node) {
  if (stack.empty()) {
    root = std::move(node);
    return;
  }
  Open &parent = stack.back();
  parent.node.cost += node.cost;
  if (parent.node.kind == YamlKind::List) {
    parent.node.items.push_back(std::move(node));
  } else if (parent.keyRead) {
    parent.node.entries.back().value = std::move(node);
    parent.keyRead = false;
  } else if (node.kind == YamlKind::Scalar) {
    parent.node.entries.push_back({std::move(node.text), node.where, {}});
    parent.keyRead = true;
  } else {
    throw YamlFault{node.where, "a key must be a name"};
  }
}

} // namespace

/// Place of byte `offset` of `text`.
static SourceLocation placeOf(std::string_view text, size_t offset,
                              SourceLocation origin) {
  std::string_view before = text.substr(0, offset);
  auto lines =
      static_cast<uint32_t>(std::count(before.begin(), before.end(), '\n'));
  size_t lineStart = lines == 0 ? 0 : before.rfind('\n') + 1;
  auto column = static_cast<uint32_t>(offset - lineStart);
  return {origin.file, origin.line + lines,
          column + (lines == 0 ? origin.column : 1)};
}

/// Offset of the first byte that is not part of valid UTF-8; the size if there
/// is none.
static size_t firstInvalid(std::string_view text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data());
  const llvm::UTF8 *at = begin, *end = begin + text.size();
  llvm::isLegalUTF8String(&at, end);
  return at - begin;
}

/// Faults of the text as bytes, before YAML is looked at.
static void checkBytes(std::string_view text, SourceLocation origin) {
  if (text.size() > kMaxYamlBytes)
    throw YamlFault{{origin.file, 0, 0},
                    "the spec has " + std::to_string(text.size()) +
                        " bytes, more than the limit of " +
                        std::to_string(kMaxYamlBytes)};
  if (size_t at = text.find('\0'); at != std::string_view::npos)
    throw YamlFault{placeOf(text, at, origin), "the spec holds a byte 0"};
  if (size_t at = firstInvalid(text); at != text.size())
    throw YamlFault{placeOf(text, at, origin), "the spec is not valid UTF-8"};
}

/// Tabs may not indent in YAML; libraries differ in what they make of them.
static void checkTabs(std::string_view text, SourceLocation origin) {
  for (size_t line = 0; line < text.size();) {
    size_t content = std::min(text.find_first_not_of(" \t", line), text.size());
    size_t tab = text.substr(line, content - line).find('\t');
    bool blank = content == text.size() || text[content] == '\n' ||
                 text[content] == '\r' || text[content] == '#';
    if (!blank && tab != std::string_view::npos)
      throw YamlFault{placeOf(text, line + tab, origin),
                      "a tab in the indentation; YAML indents with spaces"};
    line = std::min(text.find('\n', content), text.size() - 1) + 1;
  }
}

/// What yaml-cpp says, at a place within the text.
static YamlFault syntaxFault(const YAML::Exception &fault,
                             const TreeBuilder &builder, std::string_view text,
                             SourceLocation origin) {
  SourceLocation where = builder.place(fault.mark);
  SourceLocation end = placeOf(text, text.size(), origin);
  if (where.line > end.line)
    where = end;
  bool unclosed = fault.msg == YAML::ErrorMsg::DOC_IN_SCALAR ||
                  fault.msg == YAML::ErrorMsg::EOF_IN_SCALAR;
  return {where, "not valid YAML: " +
                     (unclosed ? std::string("a quoted text does not end")
                               : fault.msg)};
}

static YamlNode readTree(std::string_view text, SourceLocation origin) {
  checkBytes(text, origin);
  checkTabs(text, origin);
  TreeBuilder builder(origin);
  try {
    // The end marker: without it yaml-cpp lets the end of the text close a
    // quoted scalar.
    std::istringstream stream{std::string(text) + "\n...\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder))
      ;
  } catch (const YAML::Exception &fault) {
    throw syntaxFault(fault, builder, text, origin);
  }
  return builder.take();
}

std::optional<YamlNode> parseYaml(std::string_view text, SourceLocation origin,
                                  Diagnostics &diagnostics) {
  try {
    return readTree(text, origin);
  } catch (const YamlFault &fault) {
    diagnostics.error(fault.where, fault.message);
  }
  return std::nullopt;
}

} // namespace sluice
