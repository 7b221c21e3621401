#include "ir/text/Sections.h"

namespace sluice::text {

namespace {

/// A number of a stage that is printed where it is not as by default, which is
/// 0, of parts 1. One of the members is set.
struct StageField {
  llvm::StringRef name;
  Ticks Stage::*time = nullptr;
  uint64_t Stage::*count = nullptr;
  Bytes StageBytes::*bytes = nullptr;
  uint32_t Stage::*parts = nullptr;
};

constexpr StageField kFields[] = {
    {"forward", &Stage::forward},
    {"backward_input", &Stage::backwardInput},
    {"backward_weight", &Stage::backwardWeight},
    {"recompute", &Stage::recompute},
    {"overlap_saving", &Stage::overlapSaving},
    {"parameter_count", nullptr, &Stage::parameterCount},
    {"active_parameter_count", nullptr, &Stage::activeParameterCount},
    {"parameters", nullptr, nullptr, &StageBytes::parameters},
    {"gradients", nullptr, nullptr, &StageBytes::gradients},
    {"optimizer", nullptr, nullptr, &StageBytes::optimizer},
    {"activation", nullptr, nullptr, &StageBytes::activation},
    {"kept_for_weight", nullptr, nullptr, &StageBytes::keptForWeight},
    {"checkpoint", nullptr, nullptr, &StageBytes::checkpoint},
    {"workspace", nullptr, nullptr, &StageBytes::workspace},
    {"norms", nullptr, nullptr, &StageBytes::norms},
    {"tied", nullptr, nullptr, &StageBytes::tied},
    {"optimizer_parts", nullptr, nullptr, nullptr, &Stage::optimizerParts},
    {"gradient_parts", nullptr, nullptr, nullptr, &Stage::gradientParts},
};

} // namespace

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static void printField(const StageField &field, const Stage &stage,
                       TimeUnit unit, llvm::raw_ostream &out) {
  if (field.time && stage.*field.time != 0)
    out << ' ' << field.name << ' ' << formatDecimal(stage.*field.time, unit);
  if (field.count && stage.*field.count != 0)
    out << ' ' << field.name << ' ' << stage.*field.count;
  if (field.bytes && stage.bytes.*field.bytes != 0)
    out << ' ' << field.name << ' ' << stage.bytes.*field.bytes;
  if (field.parts && stage.*field.parts != 1)
    out << ' ' << field.name << ' ' << stage.*field.parts;
}

static void printStage(size_t index, const Stage &stage, TimeUnit unit,
                       llvm::raw_ostream &out) {
  out << "  stage " << index;
  if (stage.firstLayer != 0 || stage.layers != 0)
    out << " layers " << stage.firstLayer << '+' << stage.layers;
  for (const StageField &field : kFields)
    printField(field, stage, unit, out);
  if (stage.tiedTo != kNone)
    out << " tied_to " << stage.tiedTo;
  if (!stage.backward)
    out << " no_backward";
  if (stage.recomputePolicy != RecomputePolicy::None)
    out << " recompute_policy "
        << llvm::StringRef(recomputePolicyName(stage.recomputePolicy));
  if (stage.offload)
    out << " offload";
  if (stage.gradientsPartitioned)
    out << " gradients_partitioned";
  SourceLocation where = stage.location;
  if (where != SourceLocation()) {
    out << " at " << where.line << ':' << where.column;
    if (where.file != 0)
      out << " file " << where.file;
  }
  if (!stage.description.empty()) {
    out << ' ';
    printString(stage.description, out);
  }
  out << '\n';
}

void printStages(TimeUnit unit, uint32_t microbatches, uint32_t replicas,
                 const std::vector<Stage> &stages,
                 const std::vector<StageEdge> &edges, llvm::raw_ostream &out) {
  out << "  time_unit " << llvm::StringRef(timeUnitName(unit)) << '\n'
      << "  microbatches " << microbatches << '\n';
  if (replicas != 1)
    out << "  replicas " << replicas << '\n';
  for (size_t i = 0; i < stages.size(); ++i)
    printStage(i, stages[i], unit, out);
  for (const StageEdge &edge : edges)
    out << "  edge " << edge.from << " -> " << edge.to << " bytes "
        << edge.bytes << '\n';
}

void printWarmup(const std::vector<uint32_t> &warmup, llvm::raw_ostream &out) {
  if (warmup.empty())
    return;
  out << "  warmup";
  for (uint32_t count : warmup)
    out << ' ' << count;
  out << '\n';
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

bool parseBlock(Lexer &lexer, SourceLocation opened,
                const std::function<bool()> &statement) {
  while (lexer.nextLine()) {
    if (lexer.accept("}")) {
      lexer.finishLine();
      return true;
    }
    if (!statement() || !lexer.finishLine())
      lexer.skipStatement();
  }
  return lexer.errorAt(opened, "expected a '}' for this '{', found the end of "
                               "the text");
}

bool Keys::isFirst(Lexer &lexer) {
  llvm::StringRef key = lexer.peek();
  if (key.starts_with("\""))
    key = "\""; // a description, whatever it says
  for (const auto &[other, where] : seen)
    if (other == key)
      return lexer.errorTwice(lexer.here(), where, "'" + lexer.peek() + "'");
  seen.emplace_back(key, lexer.here());
  return true;
}

std::optional<bool> StageLines::parse(Lexer &lexer) {
  llvm::StringRef key = lexer.peek();
  if (key == "time_unit" && timeRead)
    return lexer.error("the time unit stands after a time");
  if ((key == "time_unit" || key == "microbatches" || key == "replicas") &&
      !keys.isFirst(lexer))
    return false;
  if (lexer.accept("time_unit"))
    return parseTimeUnit(lexer);
  if (lexer.accept("microbatches"))
    return lexer.takeId(microbatches, "a number of microbatches");
  if (lexer.accept("replicas"))
    return parseReplicas(lexer);
  if (lexer.accept("stage"))
    return parseStage(lexer);
  if (lexer.accept("edge"))
    return parseEdge(lexer);
  return std::nullopt;
}

bool StageLines::parseReplicas(Lexer &lexer) {
  SourceLocation where = lexer.here();
  if (!lexer.takeId(replicas, "a number of replicas"))
    return false;
  return replicas != 0 ||
         lexer.errorAt(where, "there are 0 replicas, must be at least 1");
}

bool StageLines::parseTimeUnit(Lexer &lexer) {
  for (TimeUnit unit : {TimeUnit::Unit, TimeUnit::Seconds})
    if (lexer.accept(timeUnitName(unit))) {
      timeUnit = unit;
      return true;
    }
  return lexer.unexpected("'unit' or 's'");
}

bool StageLines::parseStage(Lexer &lexer) {
  stageLines.push_back(lexer.here());
  Stage &stage = stages.emplace_back();
  if (!lexer.takeIndex("stage", nextStage))
    return false;
  Keys seen;
  while (!lexer.atEnd())
    if (!parseField(lexer, stage, seen))
      return false;
  return true;
}

static bool parseLayers(Lexer &lexer, Stage &stage) {
  return lexer.takeId(stage.firstLayer, "the number of a layer") &&
         lexer.take("+") && lexer.takeId(stage.layers, "a number of layers");
}

static bool parseLocation(Lexer &lexer, Stage &stage) {
  SourceLocation &where = stage.location;
  if (!lexer.takeId(where.line, "a line", ~0u) || !lexer.take(":") ||
      !lexer.takeId(where.column, "a column", ~0u))
    return false;
  return !lexer.accept("file") ||
         lexer.takeId(where.file, "the number of a file", ~0u);
}

static bool parsePolicy(Lexer &lexer, RecomputePolicy &policy) {
  for (unsigned i = 0; i < std::size(kRecomputePolicies); ++i)
    if (lexer.accept(kRecomputePolicies[i])) {
      policy = static_cast<RecomputePolicy>(i);
      return true;
    }
  return lexer.unexpected("'none', 'selective' or 'full'");
}

bool StageLines::parseField(Lexer &lexer, Stage &stage, Keys &seen) {
  if (!seen.isFirst(lexer))
    return false;
  if (lexer.accept("layers"))
    return parseLayers(lexer, stage);
  if (lexer.accept("at"))
    return parseLocation(lexer, stage);
  if (lexer.accept("tied_to"))
    return lexer.takeId(stage.tiedTo, "a stage");
  if (lexer.accept("recompute_policy"))
    return parsePolicy(lexer, stage.recomputePolicy);
  if (lexer.accept("offload")) {
    stage.offload = true;
    return true;
  }
  if (lexer.accept("gradients_partitioned")) {
    stage.gradientsPartitioned = true;
    return true;
  }
  if (lexer.accept("no_backward")) {
    stage.backward = false;
    return true;
  }
  if (lexer.peek().starts_with("\""))
    return lexer.takeName(stage.description, "a description");
  for (const StageField &field : kFields) {
    if (!lexer.accept(field.name))
      continue;
    if (field.time)
      return takeTime(lexer, stage.*field.time);
    if (field.count)
      return lexer.takeNumber(stage.*field.count, "a count", ~uint64_t(0));
    if (field.parts)
      return lexer.takeId(stage.*field.parts, "a number of parts");
    return lexer.takeBytes(stage.bytes.*field.bytes);
  }
  return lexer.unexpected("a field of a stage");
}

bool StageLines::parseEdge(Lexer &lexer) {
  edgeLines.push_back(lexer.here());
  StageEdge &edge = edges.emplace_back(StageEdge{0, 0, 0});
  return lexer.takeId(edge.from, "a stage") && lexer.take("->") &&
         lexer.takeId(edge.to, "a stage") && lexer.take("bytes") &&
         lexer.takeBytes(edge.bytes);
}

SourceLocation StageLines::at(const StructureFault &fault) const {
  if (fault.part == StructureFault::Part::Stage)
    return stageLines[fault.index];
  return edgeLines[fault.index];
}

bool parseWarmup(Lexer &lexer, std::vector<uint32_t> &warmup) {
  do
    if (!lexer.takeId(warmup.emplace_back(), "a warmup count"))
      return false;
  while (!lexer.atEnd());
  return true;
}

} // namespace sluice::text
