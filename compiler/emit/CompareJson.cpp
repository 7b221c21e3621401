#include "compiler/emit/Emit.h"

namespace sluice {
namespace {

class JsonComparison {
public:
  JsonComparison(const Comparison &compared, llvm::json::OStream &stream)
      : comparison(compared), json(stream) {}

  void row(const ComparedSchedule &row);

private:
  void time(const char *key, Ticks ticks) {
    json.attributeBegin(key);
    json.rawValue(formatDecimal(ticks, comparison.timeUnit));
    json.attributeEnd();
  }
  void numbers(const ComparedSchedule &row);
  void largest(const std::string &key, const std::optional<Largest> &found);

  const Comparison &comparison;
  llvm::json::OStream &json;
};

void JsonComparison::largest(const std::string &key,
                             const std::optional<Largest> &found) {
  if (found)
    json.attribute(key, found->count);
  else
    json.attribute(key, nullptr);
  if (found)
    json.attribute(key + "_limit", found->bySearch ? "search" : "memory");
  else
    json.attribute(key + "_limit", nullptr);
}

void JsonComparison::numbers(const ComparedSchedule &row) {
  time("makespan", row.makespan);
  time("span", row.span);
  json.attribute("bubble_fraction", row.bubbleFraction);
  json.attribute("peak_activation", row.peakActivation);
  json.attribute("largest_rank_bytes", row.bytes);
  json.attribute("best_makespan", row.bestMakespan);
  json.attribute("best_span", row.bestSpan);
  largest("largest_microbatches", row.microbatches);
  largest("largest_microbatch_size", row.microbatchSize);
}

void JsonComparison::row(const ComparedSchedule &row) {
  json.object([&] {
    json.attribute("schedule", escaped(row.name));
    json.attribute("own", row.own);
    json.attribute("fits", row.fits());
    if (row.reason.empty())
      json.attribute("reason", nullptr);
    else
      json.attribute("reason", escaped(row.reason));
    json.attributeArray("keys", [&] {
      for (const std::string &key : row.keys)
        json.value("pipeline." + key);
    });
    if (row.planned)
      return numbers(row);
    for (const char *key :
         {"makespan", "span", "bubble_fraction", "peak_activation",
          "largest_rank_bytes", "best_makespan", "best_span",
          "largest_microbatches", "largest_microbatches_limit",
          "largest_microbatch_size", "largest_microbatch_size_limit"})
      json.attribute(key, nullptr);
  });
}

} // namespace

void emitCompareArray(const Comparison &comparison, llvm::json::OStream &json) {
  json.attributeArray("compare", [&] {
    for (const ComparedSchedule &each : comparison.schedules)
      JsonComparison(comparison, json).row(each);
  });
}

} // namespace sluice
