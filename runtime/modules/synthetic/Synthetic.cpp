//===- runtime/modules/synthetic/Synthetic.cpp ---------------------------===//
#include "runtime/modules/synthetic/Synthetic.h"
#include "runtime/modules/SplitMix.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

namespace {

enum class Kind : uint8_t {
  Parameters,
  Gradients,
  TiedGradients,
  Optimizer,
  Saved,
  Checkpoint,
  KeptByForward,
  KeptByBackward,
  Activation,
  Gradient
};

constexpr const char *kKindNames[] = {
    "parameters", "gradients",  "tied gradients",  "optimizer",
    "saved",      "checkpoint", "kept by forward", "kept by backward",
    "activation", "gradient"};

/// Whose bytes a buffer holds.
struct Content {
  Kind kind;
  uint32_t producer;
  uint32_t consumer;
  uint64_t step = 0;
  uint32_t microbatch = 0;
  /// How many ranks' bytes, all the same, were summed as 32-bit floats.
  uint32_t summed = 1;
  /// Of a part that is kept: how many times such a sum was made, in each of
  /// which the rank of number `seat` put the sum so far; 0 of all else.
  uint32_t rounds = 0;
  uint32_t seat = 0;
};

/// Who wrote the kept buffer of a microbatch last; a recompute counts as the
/// forward.
enum class Keeper : uint8_t { Nobody, Forward, Backward };

struct Synthetic {
  sluice_stage facts;
  sluice_state state = {};
  std::vector<Keeper> keepers; ///< per microbatch
  uint64_t taken = 0;          ///< steps
  uint32_t added = 0;          ///< microbatches of the step, to the gradients
};

Synthetic &self(void *instance) { return *static_cast<Synthetic *>(instance); }

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

uint64_t seedOf(const Content &content) {
  uint64_t seed = sluice::mixBits(content.step + 1);
  seed = sluice::mixBits(seed + static_cast<uint64_t>(content.kind));
  seed = sluice::mixBits(seed + content.producer);
  seed = sluice::mixBits(seed + content.consumer);
  return sluice::mixBits(seed + content.microbatch);
}

/// Word `i` of the pattern of `seed`.
uint64_t wordAt(uint64_t seed, uint64_t i) {
  return seed + i * sluice::kSplitMixStep;
}

/// What ranks with the same float leave as their sum.
float sumOf(float word, const Content &content) {
  const auto addAll = [&](float kept, uint32_t keeper) {
    float sum = 0;
    for (uint32_t rank = 0; rank < content.summed; ++rank) {
      const float its = rank == keeper ? word + kept : word;
      sum = rank == 0 ? its : sum + its;
    }
    return sum;
  };
  if (content.rounds == 0)
    return addAll(0, content.summed);
  float kept = 0;
  for (uint32_t round = 0; round < content.rounds; ++round)
    kept = addAll(kept, content.seat);
  return kept;
}

/// The same of two.
uint64_t sumOf(uint64_t word, const Content &content) {
  float parts[2];
  std::memcpy(parts, &word, sizeof(word));
  for (float &part : parts)
    part = sumOf(part, content);
  std::memcpy(&word, parts, sizeof(word));
  return word;
}

/// A large buffer is written and checked in parts only, so that its size takes
/// no time: lines at its start, its end and evenly between, the same for who
/// writes and who reads.
constexpr uint64_t kWholeBytes = 16384; ///< up to so many, all of it
constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kLines = 64;

/// Calls `visit(begin, end)` for the parts of a buffer, in order, while it
/// returns true. Parts begin at a multiple of 8.
template <typename Visit> void visitParts(uint64_t bytes, Visit visit) {
  if (bytes <= kWholeBytes) {
    visit(uint64_t(0), bytes);
    return;
  }
  const uint64_t last = (bytes - kLineBytes) / 8;
  for (uint64_t line = 0; line + 1 < kLines; ++line) {
    const uint64_t begin = last / (kLines - 1) * line * 8;
    if (!visit(begin, begin + kLineBytes))
      return;
  }
  visit(last * 8, bytes);
}

void fillPart(unsigned char *bytes, uint64_t at, uint64_t end, uint64_t seed) {
  for (; at + 8 <= end; at += 8) {
    const uint64_t word = wordAt(seed, at / 8);
    std::memcpy(bytes + at, &word, 8);
  }
  const uint64_t last = wordAt(seed, at / 8);
  std::memcpy(bytes + at, &last, end - at);
}

void fill(const sluice_buffer &buffer, const Content &content) {
  const uint64_t seed = seedOf(content);
  auto *const bytes = static_cast<unsigned char *>(buffer.data);
  visitParts(buffer.bytes, [&](uint64_t begin, uint64_t end) {
    fillPart(bytes, begin, end, seed);
    return true;
  });
}

/// Position of the first byte of [at, end) that is not the pattern's, or end.
uint64_t firstWrongIn(const unsigned char *bytes, uint64_t at, uint64_t end,
                      uint64_t seed, const Content &content) {
  for (; at < end; at += 8) {
    const uint64_t length = end - at < 8 ? end - at : 8;
    const uint64_t word = sumOf(wordAt(seed, at / 8), content);
    if (std::memcmp(bytes + at, &word, length) == 0)
      continue;
    unsigned char expected[8];
    std::memcpy(expected, &word, 8);
    for (uint64_t i = 0; i < length; ++i)
      if (bytes[at + i] != expected[i])
        return at + i;
  }
  return end;
}

/// Position of the first byte that is checked and not the pattern's, or
/// buffer.bytes.
uint64_t firstWrong(const sluice_buffer &buffer, uint64_t seed,
                    const Content &content) {
  const auto *const bytes = static_cast<const unsigned char *>(buffer.data);
  uint64_t wrong = buffer.bytes;
  visitParts(buffer.bytes, [&](uint64_t begin, uint64_t end) {
    const uint64_t at = firstWrongIn(bytes, begin, end, seed, content);
    if (at != end)
      wrong = at;
    return at == end;
  });
  return wrong;
}

/// 0 if `buffer` holds `content`, else 1 and a sentence.
int check(const sluice_buffer &buffer, const Content &content,
          sluice_error *error) {
  const uint64_t seed = seedOf(content);
  const uint64_t wrong = firstWrong(buffer, seed, content);
  if (wrong == buffer.bytes)
    return 0;
  const uint64_t word = sumOf(wordAt(seed, wrong / 8), content);
  unsigned char expected[8];
  std::memcpy(expected, &word, 8);
  std::snprintf(
      error->message, sizeof(error->message),
      "buffer %s from stage %u for stage %u, microbatch %u: byte %llu of %llu "
      "is 0x%02x, its producer wrote 0x%02x",
      kKindNames[static_cast<unsigned>(content.kind)], content.producer,
      content.consumer, content.microbatch,
      static_cast<unsigned long long>(wrong),
      static_cast<unsigned long long>(buffer.bytes),
      static_cast<const unsigned char *>(buffer.data)[wrong],
      expected[wrong % 8]);
  return 1;
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// Returns `seconds` after `start`: sleeps most of it and spins the rest, since
/// a sleep ends late by some 50 microseconds.
void spend(Clock::time_point start, double seconds) {
  if (seconds <= 0)
    return;
  const Clock::time_point end =
      start + std::chrono::duration_cast<Clock::duration>(
                  std::chrono::duration<double>(seconds));
  constexpr auto kSpin = std::chrono::microseconds(100);
  if (end - Clock::now() > kSpin)
    std::this_thread::sleep_until(end - kSpin);
  while (Clock::now() < end) {
  }
}

/// The current time if there is any to be spent.
Clock::time_point startOf(double seconds) {
  return seconds > 0 ? Clock::now() : Clock::time_point();
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

int create(const sluice_stage *stage, void **instance, sluice_error *) {
  *instance =
      new Synthetic{*stage,
                    {},
                    std::vector<Keeper>(stage->microbatches / stage->replicas,
                                        Keeper::Nobody)};
  return 0;
}

int bytes(void *, sluice_bytes *needs, sluice_error *) {
  *needs = {};
  return 0;
}

Content stateContent(const Synthetic &stage, Kind kind) {
  return {kind, stage.facts.stage, stage.facts.stage};
}

/// The gradients of the stage in two parts: those of a table that another stage
/// has too stand first, and are looked at by themselves.
struct GradientParts {
  sluice_buffer tied, rest;
};
GradientParts partsOf(const Synthetic &stage, const sluice_buffer &gradients) {
  const uint64_t tied = std::min(stage.facts.tied_bytes, gradients.bytes);
  auto *const data = static_cast<unsigned char *>(gradients.data);
  return {{data, tied}, {data + tied, gradients.bytes - tied}};
}

/// Of what is cut into equal parts.
sluice_buffer partOf(const sluice_buffer &whole, uint32_t part,
                     uint32_t parts) {
  const uint64_t bytes = whole.bytes / parts;
  return {static_cast<unsigned char *>(whole.data) + part * bytes, bytes};
}

/// A part of the parameters, or of the gradients: with patterns of their own.
Content partContent(const Synthetic &stage, Kind kind, uint32_t part) {
  Content content = stateContent(stage, kind);
  content.microbatch = part;
  return content;
}

/// Each step changes one part of the parameters.
Content parametersAt(const Synthetic &stage, uint32_t part) {
  Content content = partContent(stage, Kind::Parameters, part);
  content.step = stage.facts.optimizer_parts == 1 ? 0 : stage.taken;
  return content;
}

void fillParameters(const Synthetic &stage, uint32_t part) {
  fill(partOf(stage.state.parameters, part, stage.facts.optimizer_parts),
       parametersAt(stage, part));
}

int checkParameters(const Synthetic &stage, sluice_error *error) {
  const uint32_t parts = stage.facts.optimizer_parts;
  for (uint32_t part = 0; part < parts; ++part)
    if (check(partOf(stage.state.parameters, part, parts),
              parametersAt(stage, part), error))
      return 1;
  return 0;
}

/// Those of the part whose step is taken.
int checkGradientPart(const Synthetic &stage, sluice_error *error) {
  const uint32_t part = stage.facts.optimizer_part;
  Content content = partContent(stage, Kind::Gradients, part);
  content.summed = stage.facts.reduced_ranks;
  if (stage.facts.gradients_partitioned) {
    content.rounds = stage.added;
    content.seat = part;
    return check(stage.state.gradients, content, error);
  }
  return check(partOf(stage.state.gradients, part, stage.facts.gradient_parts),
               content, error);
}

int checkGradients(const Synthetic &stage, const sluice_buffer &gradients,
                   uint32_t summed, sluice_error *error) {
  const GradientParts parts = partsOf(stage, gradients);
  Content tied = stateContent(stage, Kind::TiedGradients);
  Content rest = stateContent(stage, Kind::Gradients);
  tied.summed = rest.summed = summed;
  return check(parts.tied, tied, error) || check(parts.rest, rest, error);
}

/// Of a microbatch, where a part is kept alone.
void fillAllParts(const Synthetic &stage, const sluice_buffer &gradients) {
  const uint32_t parts = stage.facts.gradient_parts;
  for (uint32_t part = 0; part < parts; ++part)
    fill(partOf(gradients, part, parts),
         partContent(stage, Kind::Gradients, part));
}

/// Checks all that was filled, then adds what is kept to its own place, as far
/// as it is looked at.
int addKept(Synthetic &stage, const sluice_buffer &gradients,
            sluice_error *error) {
  const uint32_t parts = stage.facts.gradient_parts;
  for (uint32_t part = 0; part < parts; ++part)
    if (check(partOf(gradients, part, parts),
              partContent(stage, Kind::Gradients, part), error))
      return 1;
  const sluice_buffer own =
      partOf(gradients, stage.facts.optimizer_part, parts);
  auto *const sums = static_cast<float *>(own.data);
  const auto *const kept =
      static_cast<const float *>(stage.state.gradients.data);
  visitParts(own.bytes, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin / sizeof(float); i < end / sizeof(float); ++i)
      sums[i] += kept[i];
    return true;
  });
  ++stage.added;
  return 0;
}

void fillGradients(const Synthetic &stage) {
  if (stage.facts.gradients_partitioned) {
    std::memset(stage.state.gradients.data, 0, stage.state.gradients.bytes);
    return;
  }
  for (uint32_t part = 0, parts = stage.facts.gradient_parts;
       parts > 1 && part < parts; ++part)
    fill(partOf(stage.state.gradients, part, parts),
         partContent(stage, Kind::Gradients, part));
  if (stage.facts.gradient_parts > 1)
    return;
  const GradientParts parts = partsOf(stage, stage.state.gradients);
  fill(parts.tied, stateContent(stage, Kind::TiedGradients));
  fill(parts.rest, stateContent(stage, Kind::Gradients));
}

int bind(void *instance, const sluice_state *state, sluice_error *) {
  Synthetic &stage = self(instance);
  stage.state = *state;
  for (uint32_t part = 0; part < stage.facts.optimizer_parts; ++part)
    fillParameters(stage, part);
  fillGradients(stage);
  fill(state->optimizer, stateContent(stage, Kind::Optimizer));
  return 0;
}

int beginStep(void *instance, uint64_t, sluice_error *) {
  Synthetic &stage = self(instance);
  for (Keeper &keeper : stage.keepers)
    keeper = Keeper::Nobody;
  stage.added = 0;
  if (stage.facts.reduced_ranks > 1)
    fillGradients(stage); // the last step has left a sum
  return 0;
}

Content own(const Synthetic &stage, Kind kind, const sluice_call &call) {
  return {kind, stage.facts.stage, stage.facts.stage, call.step,
          call.microbatch};
}

/// Of a microbatch, which is one of its replica's.
Keeper &keeperOf(Synthetic &stage, const sluice_call &call) {
  return stage.keepers[call.microbatch % stage.keepers.size()];
}

/// Writes `kept`, if there is one, as a forward leaves it.
void keep(Synthetic &stage, const sluice_call &call) {
  if (call.kept.bytes == 0)
    return;
  fill(call.kept, own(stage, Kind::KeptByForward, call));
  keeperOf(stage, call) = Keeper::Forward;
}

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  Synthetic &stage = self(instance);
  const sluice_stage &facts = stage.facts;
  const Clock::time_point start = startOf(facts.forward_seconds);
  for (uint32_t i = 0; i < call->input_count; ++i)
    if (check(call->inputs[i],
              {Kind::Activation, facts.input_stages[i], facts.stage, call->step,
               call->microbatch},
              error))
      return 1;
  for (uint32_t i = 0; i < call->output_count; ++i)
    fill(call->outputs[i],
         {Kind::Activation, facts.stage, facts.output_stages[i], call->step,
          call->microbatch});
  fill(call->saved, own(stage, Kind::Saved, *call));
  fill(call->checkpoint, own(stage, Kind::Checkpoint, *call));
  keep(stage, *call);
  spend(start, facts.forward_seconds);
  return 0;
}

/// Checks what forward left of the microbatch, and writes the rest.
int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  Synthetic &stage = self(instance);
  const Clock::time_point start = startOf(stage.facts.recompute_seconds);
  const bool full = stage.facts.recompute == SLUICE_RECOMPUTE_FULL;
  if (full ? check(call->checkpoint, own(stage, Kind::Checkpoint, *call), error)
           : check(call->kept, own(stage, Kind::KeptByForward, *call), error))
    return 1;
  fill(call->saved, own(stage, Kind::Saved, *call));
  if (full)
    keep(stage, *call);
  spend(start, stage.facts.recompute_seconds);
  return 0;
}

/// Checks what forward left in `kept`, if it did, and writes it anew.
int passKept(Synthetic &stage, const sluice_call &call, sluice_error *error) {
  if (call.kept.bytes == 0)
    return 0;
  Keeper &keeper = keeperOf(stage, call);
  if (keeper == Keeper::Forward &&
      check(call.kept, own(stage, Kind::KeptByForward, call), error))
    return 1;
  fill(call.kept, own(stage, Kind::KeptByBackward, call));
  keeper = Keeper::Backward;
  return 0;
}

/// A gradient flows only where both stages have a backward; elsewhere the
/// buffer is empty.
int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  Synthetic &stage = self(instance);
  const sluice_stage &facts = stage.facts;
  const Clock::time_point start = startOf(facts.backward_input_seconds);
  for (uint32_t i = 0; i < call->output_count; ++i)
    if (check(call->output_gradients[i],
              {Kind::Gradient, facts.output_stages[i], facts.stage, call->step,
               call->microbatch},
              error))
      return 1;
  if (check(call->saved, own(stage, Kind::Saved, *call), error) ||
      passKept(stage, *call, error))
    return 1;
  for (uint32_t i = 0; i < call->input_count; ++i)
    fill(call->input_gradients[i],
         {Kind::Gradient, facts.stage, facts.input_stages[i], call->step,
          call->microbatch});
  if (facts.gradients_partitioned)
    fillAllParts(stage, call->gradients);
  spend(start, facts.backward_input_seconds);
  return 0;
}

int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  Synthetic &stage = self(instance);
  const Clock::time_point start = startOf(stage.facts.backward_weight_seconds);
  if (call->kept.bytes != 0) {
    const Kind kind = keeperOf(stage, *call) == Keeper::Forward
                          ? Kind::KeptByForward
                          : Kind::KeptByBackward;
    if (check(call->kept, own(stage, kind, *call), error))
      return 1;
  }
  if (stage.facts.gradients_partitioned &&
      addKept(stage, call->gradients, error))
    return 1;
  spend(start, stage.facts.backward_weight_seconds);
  return 0;
}

/// Both copies hold the same pattern, and their sum is kept as it.
int addGradients(void *instance, const sluice_buffer *other, void *,
                 sluice_error *error) {
  const Synthetic &stage = self(instance);
  const uint32_t parts = stage.facts.gradient_parts;
  if (parts == 1)
    return checkGradients(stage, *other, 1, error);
  for (uint32_t part = 0; part < parts; ++part)
    if (check(partOf(*other, part, parts),
              partContent(stage, Kind::Gradients, part), error))
      return 1;
  return 0;
}

/// It has no tensors.
int normGradients(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}

int optimizerStep(void *instance, uint64_t, const sluice_buffer *tied, void *,
                  sluice_error *error) {
  Synthetic &stage = self(instance);
  const uint32_t other = stage.facts.tied_stage;
  const uint32_t summed = stage.facts.reduced_ranks;
  if (!tied && stage.facts.tied_bytes != 0) {
    std::snprintf(error->message, sizeof(error->message),
                  "the step gets no gradients of stage %u, which its stage is "
                  "tied to",
                  other);
    return 1;
  }
  // Stages that are tied have as many copies.
  if (tied &&
      check(*tied, {Kind::TiedGradients, other, other, 0, 0, summed}, error))
    return 1;
  if (checkParameters(stage, error) ||
      (stage.facts.gradient_parts > 1
           ? checkGradientPart(stage, error)
           : checkGradients(stage, stage.state.gradients, summed, error)) ||
      check(stage.state.optimizer, stateContent(stage, Kind::Optimizer), error))
    return 1;
  ++stage.taken;
  if (stage.facts.optimizer_parts > 1)
    fillParameters(stage, stage.facts.optimizer_part);
  return 0;
}

int loss(void *, double *, int *has, sluice_error *) {
  *has = 0;
  return 0;
}

uint32_t tensorCount(void *) { return 0; }

int tensor(void *, uint32_t index, sluice_tensor *, sluice_error *error) {
  std::snprintf(error->message, sizeof(error->message), "there is no tensor %u",
                index);
  return 1;
}

void destroy(void *instance) { delete static_cast<Synthetic *>(instance); }

constexpr sluice_module kModule = {SLUICE_MODULE_VERSION,
                                   "synthetic",
                                   create,
                                   bytes,
                                   bind,
                                   beginStep,
                                   forward,
                                   recompute,
                                   backwardInput,
                                   backwardWeight,
                                   addGradients,
                                   normGradients,
                                   optimizerStep,
                                   loss,
                                   tensorCount,
                                   tensor,
                                   destroy};

} // namespace

const sluice_module *sluice_synthetic_module() { return &kModule; }
