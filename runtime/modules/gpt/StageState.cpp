//===- runtime/modules/gpt/StageState.cpp - One stage with its memory ----===//
#include "runtime/modules/gpt/StageState.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sluice::gpt {
namespace {

template <typename Real> constexpr std::string_view kDtype = "fp64";
template <> constexpr std::string_view kDtype<float> = "fp32";
template <> constexpr std::string_view kDtype<BFloat16> = "bf16";

/// Whether the optimizer keeps the parameters in a type of its own.
template <typename Real>
constexpr bool kHasMaster = !std::is_same_v<Real, GradientOf<Real>>;

/// State per parameter: mean and mean square of its gradient.
constexpr uint64_t kMoments = 2;

template <typename Real> uint64_t bytesOf(uint64_t elements) {
  return saturatingProduct(elements, sizeof(Real));
}

template <typename Real> Real *as(const sluice_buffer &buffer) {
  return static_cast<Real *>(buffer.data);
}

Status tooSmall(std::string_view what, uint64_t has, uint64_t needs) {
  return Status::environment("the " + std::string(what) + " buffer has " +
                             std::to_string(has) + " bytes, the stage needs " +
                             std::to_string(needs));
}

struct Need {
  std::string_view what;
  const sluice_buffer &buffer;
  uint64_t bytes;
};

Status enough(std::initializer_list<Need> needs) {
  for (const Need &need : needs)
    if (need.buffer.bytes < need.bytes)
      return tooSmall(need.what, need.buffer.bytes, need.bytes);
  return Status();
}

/// The one buffer on a side where the stage has a neighbour.
Status checkSide(bool has, std::string_view what, uint32_t count,
                 const sluice_buffer *buffers, uint64_t bytes) {
  if (!has)
    return Status();
  if (count != 1 || !buffers)
    return Status::environment("the call brings no " + std::string(what) +
                               " buffer");
  return enough({{what, buffers[0], bytes}});
}

} // namespace

template <typename Real>
StageState<Real>::StageState(Config configuration,
                             std::unique_ptr<Primitives<Real>> primitives)
    : config(std::move(configuration)), needs(needsOf(config)),
      embeddingLayout(offsetsOf(embeddingTensors(config))), blockLayout(config),
      headLayout(config),
      firstBlock(config.hasTable() ? embeddingLayout.back() : 0),
      headStart(firstBlock + config.stageLayers * blockLayout.tensors.back()),
      math(std::move(primitives)) {}

template <typename Real>
Status StageState<Real>::create(const sluice_stage &stage,
                                std::unique_ptr<Primitives<Real>> primitives,
                                std::unique_ptr<Stage> &result) {
  Config config;
  if (Status status = readConfig(stage, kDtype<Real>, config); !status.ok())
    return status;
  std::unique_ptr<StageState> state(
      new StageState(std::move(config), std::move(primitives)));
  const sluice_bytes bytes = state->bytes();
  const uint64_t largest =
      std::max({bytes.optimizer, bytes.workspace, bytes.saved, bytes.kept,
                bytes.checkpoint, bytes.input});
  if (largest > uint64_t(INT64_MAX))
    return Status::input("the stage needs more than " +
                         std::to_string(INT64_MAX) + " bytes");
  const uint64_t shared = state->config.sharesTable()
                              ? bytesOf<Gradient>(state->config.table())
                              : 0;
  if (stage.tied_bytes != 0 && (shared == 0 || stage.tied_bytes < shared))
    return Status::input("the stage shares " + std::to_string(shared) +
                         " bytes of gradients with another, the plan says " +
                         std::to_string(stage.tied_bytes));
  if (Status status = state->checkParts(); !status.ok())
    return status;
  if (Status status = state->math->prepare(state->config, stage); !status.ok())
    return status;
  if (state->config.embedding || state->config.head)
    if (Status status = state->text.read(state->config); !status.ok())
      return status;
  result = std::move(state);
  return Status();
}

template <typename Real> sluice_bytes StageState<Real>::bytes() const {
  sluice_bytes bytes{};
  bytes.parameters = bytesOf<Real>(needs.parameters);
  bytes.input = bytesOf<Real>(needs.input);
  bytes.output = bytesOf<Real>(needs.output);
  bytes.workspace = bytesOf<Real>(needs.workspace);
  bytes.host = math->hostBytes();
  if (!config.trained) { // what a backward would need is scratch
    bytes.workspace = bytesOf<Real>(
        saturatingSum(needs.workspace, saturatingSum(needs.saved, needs.kept)));
    return bytes;
  }
  bytes.gradients = bytesOf<Gradient>(
      saturatingProduct(needs.gradients, config.gradientGroups > 1 ? 2 : 1));
  const uint64_t parts = config.optimizerParts;
  const uint64_t each =
      needs.parameters / parts + (needs.parameters % parts != 0);
  const uint64_t all = saturatingProduct(each, parts); // in equal parts
  bytes.parameters = bytesOf<Real>(all);
  if (parts > 1 && needs.gradients == needs.parameters)
    bytes.gradients = std::max(bytes.gradients, bytesOf<Gradient>(all));
  bytes.optimizer = optimizerBytes(each);
  if (config.clipNorm > 0)
    bytes.norms = saturatingProduct(tensorPositions(config), sizeof(double));
  bytes.saved = bytesOf<Real>(needs.saved);
  bytes.kept = bytesOf<Real>(needs.kept);
  bytes.checkpoint = bytesOf<Real>(needs.checkpoint);
  return bytes;
}

template <typename Real>
uint64_t StageState<Real>::optimizerBytes(uint64_t count) const {
  return config.trained ? saturatingProduct(kMoments + kHasMaster<Real>,
                                            bytesOf<Gradient>(count))
                        : 0;
}

template <typename Real>
Status StageState<Real>::bind(const sluice_state &memory) {
  const sluice_bytes need = bytes();
  const uint64_t kept = config.gradientsPartitioned
                            ? need.gradients / config.gradientParts
                            : need.gradients;
  Status status = enough({{"parameter", memory.parameters, need.parameters},
                          {"gradient", memory.gradients, kept},
                          {"optimizer", memory.optimizer, need.optimizer},
                          {"workspace", memory.workspace, need.workspace},
                          {"norm", memory.norms, need.norms},
                          {"host", memory.host, need.host}});
  if (status.ok())
    status = math->bind(memory.host);
  if (!status.ok())
    return status;
  if (Status cut = takeParts(memory); !cut.ok())
    return cut;
  parameters = as<Real>(memory.parameters);
  gradients = as<Gradient>(memory.gradients);
  sums = gradients + (config.gradientGroups > 1 ? needs.gradients : 0);
  optimizer = as<Gradient>(memory.optimizer);
  workspace = as<Real>(memory.workspace);
  norms = as<double>(memory.norms);
  table = tensorsOf(config);
  return initialiseState();
}

template <typename Real> Status StageState<Real>::initialiseState() {
  if (config.trained)
    math->clear(optimizer, optimizerBytes(part));
  std::vector<Gradient> values;
  std::vector<Real> rounded;
  for (const Tensor &t : table) {
    if constexpr (!kHasMaster<Real>)
      if (math->isImmediate()) {
        initialise(config, t, parameters + t.offset);
        continue;
      }
    values.resize(t.elements);
    initialise(config, t, values.data());
    rounded.resize(t.elements);
    std::transform(values.begin(), values.end(), rounded.begin(),
                   [](Gradient value) { return Real(value); });
    Status status = math->upload(parameters + t.offset, rounded.data(),
                                 bytesOf<Real>(t.elements));
    if (const Range own = ownOf(t);
        kHasMaster<Real> && config.trained && own.size != 0 && status.ok())
      status = math->upload(optimizer + (own.begin - partBegin),
                            values.data() + (own.begin - t.offset),
                            bytesOf<Gradient>(own.size));
    if (!status.ok())
      return status;
  }
  return math->status();
}

/// Norms and the gradients of a table that two stages hold, or that embedding
/// and head sum apart, need all sums.
template <typename Real> Status StageState<Real>::checkParts() const {
  const bool needsAll = config.clipNorm > 0 || config.gradientGroups > 1 ||
                        needs.gradients != needs.parameters ||
                        config.sharesTable();
  if (config.gradientParts == 1 || !needsAll)
    return Status();
  return Status::input("the gradients are summed in " +
                       std::to_string(config.gradientParts) +
                       " parts, the step needs them whole");
}

/// Which of the parameters a step changes.
template <typename Real>
Status StageState<Real>::takeParts(const sluice_state &memory) {
  const uint64_t parts = config.optimizerParts;
  part = parts == 1 ? needs.parameters
                    : memory.parameters.bytes / sizeof(Real) / parts;
  if (parts > 1 && memory.parameters.bytes % (parts * sizeof(Real)) != 0)
    return Status::input(std::to_string(memory.parameters.bytes) +
                         " bytes of parameters do not have " +
                         std::to_string(parts) + " equal parts");
  partBegin = part * config.optimizerPart;
  const uint64_t all = memory.gradients.bytes / sizeof(Gradient) *
                       (config.gradientsPartitioned ? parts : 1);
  if (config.gradientParts > 1 && all != memory.parameters.bytes / sizeof(Real))
    return Status::input("parts of " + std::to_string(memory.gradients.bytes) +
                         " bytes of gradients are not those of " +
                         std::to_string(memory.parameters.bytes) +
                         " bytes of parameters");
  return enough({{"optimizer", memory.optimizer, optimizerBytes(part)}});
}

template <typename Real> Status StageState<Real>::checkBound() const {
  return parameters
             ? Status()
             : Status::environment("the stage is called before it has memory");
}

template <typename Real>
Status StageState<Real>::checkKept(const sluice_call &call) const {
  Status status = checkBound();
  return status.ok() ? enough({{"kept", call.kept, bytes().kept}}) : status;
}

template <typename Real>
Status StageState<Real>::checkSaved(const sluice_call &call) const {
  return enough({{"saved", call.saved, bytes().saved}});
}

template <typename Real>
Status StageState<Real>::checkForward(const sluice_call &call) const {
  const sluice_bytes need = bytes();
  Status status = config.isFull() ? checkBound() : checkKept(call);
  if (status.ok())
    status = checkSide(!config.embedding, "input", call.input_count,
                       call.inputs, need.input);
  if (status.ok())
    status = checkSide(!config.head, "output", call.output_count, call.outputs,
                       need.output);
  if (!status.ok() || config.isSelective())
    return status;
  return config.isFull()
             ? enough({{"checkpoint", call.checkpoint, need.checkpoint}})
             : checkSaved(call);
}

template <typename Real>
Status StageState<Real>::checkRecompute(const sluice_call &call) const {
  Status status = checkKept(call);
  if (status.ok())
    status = checkSaved(call);
  if (status.ok() && config.isFull())
    status = enough({{"checkpoint", call.checkpoint, bytes().checkpoint}});
  return status;
}

template <typename Real>
Status StageState<Real>::checkBackwardInput(const sluice_call &call) const {
  const sluice_bytes need = bytes();
  Status status = checkKept(call);
  if (status.ok())
    status = checkSide(!config.embedding, "input gradient", call.input_count,
                       call.input_gradients, need.input);
  if (status.ok())
    status = checkSide(!config.head, "output gradient", call.output_count,
                       call.output_gradients, need.output);
  if (status.ok())
    status = checkGroup(byInput, call);
  if (status.ok())
    status = checkGradients(call);
  return status.ok() ? checkSaved(call) : status;
}

template <typename Real>
Status StageState<Real>::checkBackwardWeight(const sluice_call &call) const {
  Status status = checkKept(call);
  if (status.ok())
    status = checkGroup(byWeight, call);
  return status.ok() ? checkGradients(call) : status;
}

//===----------------------------------------------------------------------===//
// Groups of microbatches
//===----------------------------------------------------------------------===//

/// There is room for the sum of one group: its microbatches come one after the
/// other.
template <typename Real>
Status StageState<Real>::checkGroup(const Group &group,
                                    const sluice_call &call) const {
  if (group.done == 0 || call.microbatch / config.groupSize() == group.number)
    return Status();
  return Status::environment(
      "microbatch " + std::to_string(call.microbatch) + " comes while group " +
      std::to_string(group.number) + " of gradient_groups has " +
      std::to_string(group.done) + " of its " +
      std::to_string(config.groupSize()) + " microbatches");
}

template <typename Real> Status StageState<Real>::checkGroupsWhole() const {
  for (const Group *group : {&byInput, &byWeight})
    if (group->done != 0)
      return Status::environment(
          "the step ends while group " + std::to_string(group->number) +
          " of gradient_groups has " + std::to_string(group->done) +
          " of its " + std::to_string(config.groupSize()) + " microbatches");
  return Status();
}

/// After a call that has added to gradients: adds the sum of a group that is
/// whole to that of the groups before.
template <typename Real>
void StageState<Real>::endCall(Group &group, const sluice_call &call) {
  if (config.gradientGroups == 1)
    return;
  group.number = call.microbatch / config.groupSize();
  if (++group.done != config.groupSize())
    return;
  addSums(&group == &byInput, group.first);
  group.done = 0;
  group.first = false;
}

template <typename Real>
void StageState<Real>::addSums(bool isByInput, bool isFirst) {
  for (const Tensor &t : table)
    if (t.byInput == isByInput)
      addSum(t.offset, t.elements, isFirst);
  if (!isByInput && config.tied && config.head && config.embedding)
    addSum(outputGradients(), config.table(), isFirst);
}

/// The first sum is taken as it is, as an all-reduce takes that of the first
/// rank.
template <typename Real>
void StageState<Real>::addSum(size_t offset, size_t count, bool isFirst) {
  const uint64_t size = bytesOf<Gradient>(count);
  if (isFirst)
    math->copy(gradients + offset, sums + offset, size);
  else
    math->add(gradients + offset, sums + offset, count);
  math->clear(sums + offset, size);
}

template <typename Real> Embedding<Real> StageState<Real>::embedding() const {
  return {*math, {parameters, &embeddingLayout}, {sums, &embeddingLayout}};
}

template <typename Real>
Block<Real> StageState<Real>::block(size_t index, Real *kept,
                                    Real *probabilities) const {
  size_t start = firstBlock + index * blockLayout.tensors.back();
  return {*math,
          config,
          {parameters + start, &blockLayout.tensors},
          {sums + start, &blockLayout.tensors},
          {kept, &blockLayout.kept},
          probabilities};
}

/// A forward that leaves no probabilities has nothing saved.
template <typename Real>
Block<Real> StageState<Real>::block(size_t index,
                                    const sluice_call &call) const {
  Real *saved = config.flashAttention || call.saved.bytes == 0
                    ? nullptr
                    : as<Real>(call.saved) + index * probabilitiesOf(config);
  return block(index, as<Real>(call.kept) + index * blockLayout.kept.back(),
               saved);
}

/// The norm's input: saved, but kept where recomputation is selective.
template <typename Real>
Real *StageState<Real>::headInput(const sluice_call &call) const {
  if (!config.isSelective())
    return as<Real>(call.saved) + config.stageLayers * probabilitiesOf(config);
  return as<Real>(call.kept) + config.stageLayers * blockLayout.kept.back() +
         headLayout.kept.back();
}

template <typename Real>
Head<Real> StageState<Real>::head(const sluice_call &call) const {
  return head(as<Real>(call.kept) +
              config.stageLayers * blockLayout.kept.back());
}

template <typename Real> Head<Real> StageState<Real>::head(Real *kept) const {
  const Pieces<const Real, kHeadTensors> weights = {parameters + headStart,
                                                    &headLayout.tensors};
  const Pieces<Gradient, kHeadTensors> added = {sums + headStart,
                                                &headLayout.tensors};
  return {*math,
          weights,
          added,
          config.tied ? parameters : weights[HeadWeight],
          config.tied ? sums + outputGradients() : added[HeadWeight],
          {kept, &headLayout.kept}};
}

template <typename Real>
Real *StageState<Real>::inputOf(size_t index, const sluice_call &call) const {
  if (index < config.stageLayers)
    return block(index, call).kept[Input];
  if (config.head)
    return headInput(call);
  return call.outputs ? as<Real>(call.outputs[0]) : nullptr;
}

template <typename Real> Status StageState<Real>::beginStep(uint64_t step) {
  if (hostCopy && !stepped) { // it may have been written to
    Status status = math->upload(parameters, hostCopy.get(),
                                 bytesOf<Real>(needs.parameters));
    if (status.ok())
      status = math->upload(optimizer, hostCopy.get() + optimizerAt(),
                            optimizerBytes(part));
    if (!status.ok())
      return status;
  }
  hostCopy.reset();
  stepped = true;
  cleared = false;
  byInput = byWeight = {};
  math->beginStep(config, text, step);
  if (math->isImmediate())
    clearSums();
  // A rank may sum norms before it computes.
  return config.trained && config.clipNorm > 0
             ? math->clearNow(norms, tensorPositions(config) * sizeof(double))
             : Status();
}

/// Before what a call enqueues. On a device the first one of a step clears the
/// gradients of the step before: what adds to them comes behind on the stream.
template <typename Real> void StageState<Real>::start(void *stream) {
  math->use(stream);
  if (!cleared)
    clearSums();
}

template <typename Real> void StageState<Real>::clearSums() {
  cleared = true;
  if (!config.trained)
    return;
  const uint64_t size =
      bytesOf<Gradient>(config.gradientsPartitioned ? part : needs.gradients);
  math->clear(gradients, size);
  if (config.gradientGroups > 1)
    math->clear(sums, size);
}

//===----------------------------------------------------------------------===//
// Gradients in parts
//===----------------------------------------------------------------------===//

template <typename Real>
Status StageState<Real>::checkGradients(const sluice_call &call) const {
  return config.gradientsPartitioned
             ? enough({{"gradient", call.gradients, wholeBytes()}})
             : Status();
}

/// Where `gradients` are a part: those of a microbatch begin at 0.
template <typename Real>
void StageState<Real>::beginGradients(const sluice_call &call) {
  if (!config.gradientsPartitioned)
    return;
  sums = as<Gradient>(call.gradients);
  math->clear(sums, wholeBytes());
}

/// The sum so far goes into that of the microbatch.
template <typename Real> void StageState<Real>::addPart() {
  if (config.gradientsPartitioned)
    math->add(sums + partBegin, gradients, part);
}

/// The call with places for what its forward leaves: of a stage that is not
/// trained they are in the workspace, behind what it needs by itself.
template <typename Real>
sluice_call StageState<Real>::withScratch(sluice_call call) const {
  if (config.trained)
    return call;
  Real *scratch = workspace + needs.workspace;
  call.saved = {scratch, bytesOf<Real>(needs.saved)};
  call.kept = {scratch + needs.saved, bytesOf<Real>(needs.kept)};
  return call;
}

template <typename Real>
void StageState<Real>::takeInput(const sluice_call &call, Real *place) const {
  if (config.embedding)
    embedding().forward(batch(call), place);
  else
    math->copy(place, as<Real>(call.inputs[0]), bytesOf<Real>(needs.input));
}

/// Computes blocks and head in what the call keeps, from the first's input on.
template <typename Real>
void StageState<Real>::fill(const sluice_call &call, bool counts) const {
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, call).forward(inputOf(i + 1, call), scratch());
  if (config.head)
    head(call).forward(batch(call), headInput(call), counts);
}

/// Computes blocks and head one after the other in the workspace, so that only
/// the checkpoint and the output are left.
template <typename Real>
void StageState<Real>::passThrough(const sluice_call &call) const {
  Real *output = config.head ? workspace : as<Real>(call.outputs[0]);
  Real *input = config.stageLayers > 0 ? workspace : output;
  takeInput(call, input);
  if (!config.embedding)
    math->copy(as<Real>(call.checkpoint), input, bytesOf<Real>(needs.input));
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, workspace, nullptr)
        .forward(i + 1 < config.stageLayers ? workspace : output,
                 scratch().after(blockLayout.kept.back()));
  Real *kept = workspace + config.tokens() * config.hidden;
  if (config.head)
    head(kept).forward(batch(call), workspace, true);
}

template <typename Real>
Status StageState<Real>::forward(const sluice_call &given) {
  if (Status status = checkForward(given); !status.ok())
    return status;
  start(given.stream);
  const sluice_call call = withScratch(given);
  if (config.isFull()) {
    passThrough(call);
  } else {
    takeInput(call, inputOf(0, call));
    fill(call, true);
  }
  return math->status();
}

template <typename Real>
Status StageState<Real>::recompute(const sluice_call &call) {
  if (Status status = checkRecompute(call); !status.ok())
    return status;
  start(call.stream);
  if (config.isSelective()) {
    if (!config.flashAttention)
      for (size_t i = 0; i < config.stageLayers; ++i)
        block(i, call).remakeProbabilities();
  } else if (config.stageLayers != 0 || config.head) { // else nothing is kept
    sluice_call again = call;
    again.inputs = &call.checkpoint;
    takeInput(again, inputOf(0, again));
    fill(again, false);
  }
  return math->status();
}

template <typename Real>
Status StageState<Real>::backwardInput(const sluice_call &call) {
  if (Status status = checkBackwardInput(call); !status.ok())
    return status;
  start(call.stream);
  beginGradients(call);
  const size_t elements = config.tokens() * config.hidden;
  if (config.embedding && config.stageLayers == 0 && !config.head) {
    embedding().backward(batch(call), as<Real>(call.output_gradients[0]));
    endCall(byInput, call);
    return math->status();
  }
  // The gradient as it walks from the last layer to the first.
  Real *chain =
      config.embedding ? workspace : as<Real>(call.input_gradients[0]);
  const Scratch<Real> rest = scratch().after(config.embedding ? elements : 0);
  if (config.head)
    head(call).backwardInput(config, headInput(call), chain, rest.data);
  else
    math->copy(chain, as<Real>(call.output_gradients[0]),
               bytesOf<Real>(elements));
  for (size_t i = config.stageLayers; i-- > 0;)
    block(i, call).backwardInput(chain, rest);
  if (config.embedding)
    embedding().backward(batch(call), chain);
  endCall(byInput, call);
  return math->status();
}

template <typename Real>
Status StageState<Real>::backwardWeight(const sluice_call &call) {
  if (Status status = checkBackwardWeight(call); !status.ok())
    return status;
  start(call.stream);
  if (config.gradientsPartitioned)
    sums = as<Gradient>(call.gradients);
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, call).backwardWeight(scratch());
  if (config.head)
    head(call).backwardWeight(config);
  addPart();
  endCall(byWeight, call);
  return math->status();
}

template <typename Real>
Status StageState<Real>::addGradients(const sluice_buffer &other,
                                      void *stream) {
  if (Status status = checkGroupsWhole(); !status.ok())
    return status;
  if (other.bytes < bytesOf<Gradient>(needs.gradients))
    return Status::input("the other copy's gradients have " +
                         std::to_string(other.bytes) + " bytes, not " +
                         std::to_string(bytesOf<Gradient>(needs.gradients)));
  start(stream);
  math->add(gradients, as<Gradient>(other), needs.gradients);
  return math->status();
}

/// The table of tokens is the first tensor. Embedding and head have summed its
/// gradients apart, and they stay so: another stage may still read them.
template <typename Real>
Status StageState<Real>::tiedPart(const sluice_buffer *tied,
                                  const Gradient *&more) const {
  more = nullptr;
  if (config.sharesTable()) {
    if (!tied || tied->bytes < bytesOf<Gradient>(config.table()))
      return Status::input("the step gets " +
                           std::to_string(tied ? tied->bytes : 0) +
                           " bytes of the tied gradients, not " +
                           std::to_string(bytesOf<Gradient>(config.table())));
    more = as<Gradient>(*tied);
  } else if (config.tied && config.head) {
    more = gradients + outputGradients();
  }
  return checkGroupsWhole();
}

template <typename Real>
Status StageState<Real>::normGradients(const sluice_buffer *tied,
                                       void *stream) {
  const Gradient *more = nullptr;
  if (Status status = tiedPart(tied, more); !status.ok())
    return status;
  if (config.clipNorm <= 0)
    return Status::input("norms are asked for, but the run has no clip_norm");
  start(stream);
  const bool othersTable = config.sharesTable() && !config.embedding;
  for (const Tensor &t : table)
    if (t.offset != 0 || !othersTable)
      math->sumOfSquares({gradients + t.offset, t.offset == 0 ? more : nullptr},
                         t.elements, norms + t.position);
  return math->status();
}

template <typename Real>
Status StageState<Real>::optimizerStep(const sluice_buffer *tied,
                                       void *stream) {
  const Gradient *more = nullptr;
  if (Status status = tiedPart(tied, more); !status.ok())
    return status;
  start(stream);
  if (config.clipNorm > 0)
    math->clip(norms, tensorPositions(config), config.clipNorm);
  Gradient *const mean = optimizer + kHasMaster<Real> * part;
  const size_t first = config.gradientsPartitioned ? partBegin : 0;
  for (const Tensor &t : table) {
    const Range own = ownOf(t);
    const size_t at = own.begin - partBegin;
    const Gradient *const other = t.offset == 0 ? more : nullptr;
    if (own.size != 0)
      math->adamW({parameters + own.begin,
                   kHasMaster<Real> ? optimizer + at : nullptr,
                   {gradients + (own.begin - first),
                    other ? other + (own.begin - t.offset) : nullptr},
                   mean + at,
                   mean + part + at,
                   own.size,
                   t.matrix});
  }
  return math->status();
}

/// As much of the tensor as is in the part at hand.
template <typename Real>
typename StageState<Real>::Range
StageState<Real>::ownOf(const Tensor &t) const {
  const size_t begin = std::max(t.offset, partBegin);
  const size_t end = std::min(t.offset + t.elements, partBegin + part);
  return begin < end ? Range{begin, end - begin} : Range{partBegin, 0};
}

template <typename Real> Status StageState<Real>::copyState() {
  hostCopy = std::make_unique_for_overwrite<std::byte[]>(optimizerAt() +
                                                         optimizerBytes(part));
  Status status = math->download(hostCopy.get(), parameters,
                                 bytesOf<Real>(needs.parameters));
  return status.ok() ? math->download(hostCopy.get() + optimizerAt(), optimizer,
                                      optimizerBytes(part))
                     : status;
}

template <typename Real>
Status StageState<Real>::tensor(uint32_t index, sluice_tensor &result) {
  if (index >= table.size())
    return Status::environment("there is no tensor " + std::to_string(index) +
                               " of " + std::to_string(table.size()));
  if (!math->isImmediate() && !hostCopy)
    if (Status status = copyState(); !status.ok())
      return status;
  auto *own = parameters;
  Gradient *states = optimizer;
  if (hostCopy) {
    own = reinterpret_cast<Real *>(hostCopy.get());
    states = reinterpret_cast<Gradient *>(hostCopy.get() + optimizerAt());
  }
  const Tensor &t = table[index];
  result = {};
  result.name = t.name.c_str();
  result.position = t.position;
  result.data = own + t.offset;
  result.bytes = bytesOf<Real>(t.elements);
  if (config.trained && config.optimizerParts == 1)
    for (size_t i = 0; i < kMoments + kHasMaster<Real>; ++i)
      result.states[result.state_count++] = {states + i * needs.parameters +
                                                 t.offset,
                                             bytesOf<Gradient>(t.elements)};
  return Status();
}

template class StageState<float>;
template class StageState<double>;
template class StageState<BFloat16>;

} // namespace sluice::gpt
