//===- runtime/modules/gpt/StageState.cpp - One stage with its memory ----===//
#include "runtime/modules/gpt/StageState.h"

#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sluice::gpt {
namespace {

template <typename Real>
constexpr std::string_view kDtype =
    std::is_same_v<Real, float> ? "fp32" : "fp64";

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
StageState<Real>::StageState(Config configuration)
    : config(std::move(configuration)), needs(needsOf(config)),
      embeddingLayout(offsetsOf(embeddingTensors(config))), blockLayout(config),
      headLayout(config),
      firstBlock(config.hasTable() ? embeddingLayout.back() : 0),
      headStart(firstBlock + config.stageLayers * blockLayout.tensors.back()) {}

template <typename Real>
Status StageState<Real>::create(const sluice_stage &stage,
                                StageState *&result) {
  Config config;
  if (Status status = readConfig(stage, kDtype<Real>, config); !status.ok())
    return status;
  std::unique_ptr<StageState> state(new StageState(std::move(config)));
  const sluice_bytes bytes = state->bytes();
  const uint64_t largest =
      std::max({bytes.optimizer, bytes.workspace, bytes.saved, bytes.kept,
                bytes.checkpoint, bytes.input});
  if (largest > uint64_t(INT64_MAX))
    return Status::input("the stage needs more than " +
                         std::to_string(INT64_MAX) + " bytes");
  const uint64_t shared =
      state->config.sharesTable() ? bytesOf<Real>(state->config.table()) : 0;
  if (stage.tied_bytes != 0 && (shared == 0 || stage.tied_bytes < shared))
    return Status::input("the stage shares " + std::to_string(shared) +
                         " bytes of gradients with another, the plan says " +
                         std::to_string(stage.tied_bytes));
  if (Status status = state->checkParts(); !status.ok())
    return status;
  if (Status status = prepareMatrixProducts(stage.ranks * stage.replicas);
      !status.ok())
    return status;
  if (state->config.embedding || state->config.head)
    if (Status status = state->text.read(state->config); !status.ok())
      return status;
  result = state.release();
  return Status();
}

template <typename Real> sluice_bytes StageState<Real>::bytes() const {
  sluice_bytes bytes{};
  bytes.parameters = bytesOf<Real>(needs.parameters);
  bytes.input = bytesOf<Real>(needs.input);
  bytes.output = bytesOf<Real>(needs.output);
  bytes.workspace = bytesOf<Real>(needs.workspace);
  if (!config.trained) { // what a backward would need is scratch
    bytes.workspace = bytesOf<Real>(
        saturatingSum(needs.workspace, saturatingSum(needs.saved, needs.kept)));
    return bytes;
  }
  bytes.gradients = bytesOf<Real>(
      saturatingProduct(needs.gradients, config.gradientGroups > 1 ? 2 : 1));
  const uint64_t parts = config.optimizerParts;
  const uint64_t each =
      bytesOf<Real>(needs.parameters / parts + (needs.parameters % parts != 0));
  bytes.parameters = saturatingProduct(each, parts); // equal ones
  if (parts > 1 && needs.gradients == needs.parameters)
    bytes.gradients = std::max(bytes.gradients, bytes.parameters);
  bytes.optimizer = saturatingProduct(kMoments, each);
  if (config.clipNorm > 0)
    bytes.norms = saturatingProduct(tensorPositions(config), sizeof(double));
  bytes.saved = bytesOf<Real>(needs.saved);
  bytes.kept = bytesOf<Real>(needs.kept);
  bytes.checkpoint = bytesOf<Real>(needs.checkpoint);
  return bytes;
}

template <typename Real>
Status StageState<Real>::bind(const sluice_state &memory) {
  const sluice_bytes need = bytes();
  Status status = enough({{"parameter", memory.parameters, need.parameters},
                          {"gradient", memory.gradients, need.gradients},
                          {"optimizer", memory.optimizer, need.optimizer},
                          {"workspace", memory.workspace, need.workspace},
                          {"norm", memory.norms, need.norms}});
  if (!status.ok())
    return status;
  if (Status cut = takeParts(memory); !cut.ok())
    return cut;
  parameters = as<Real>(memory.parameters);
  gradients = as<Real>(memory.gradients);
  sums = gradients + (config.gradientGroups > 1 ? needs.gradients : 0);
  optimizer = as<Real>(memory.optimizer);
  workspace = as<Real>(memory.workspace);
  norms = as<double>(memory.norms);
  table = tensorsOf(config);
  initialise(config, table, parameters);
  if (config.trained)
    std::fill_n(optimizer, kMoments * part, Real(0));
  return Status();
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
  if (config.gradientParts > 1 &&
      memory.gradients.bytes != memory.parameters.bytes)
    return Status::input("parts of " + std::to_string(memory.gradients.bytes) +
                         " bytes of gradients are not those of " +
                         std::to_string(memory.parameters.bytes) +
                         " bytes of parameters");
  return config.trained ? enough({{"optimizer", memory.optimizer,
                                   kMoments * bytesOf<Real>(part)}})
                        : Status();
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
  return status.ok() ? checkSaved(call) : status;
}

template <typename Real>
Status StageState<Real>::checkBackwardWeight(const sluice_call &call) const {
  Status status = checkKept(call);
  return status.ok() ? checkGroup(byWeight, call) : status;
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
  if (sums == gradients)
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
  if (isFirst)
    std::copy_n(sums + offset, count, gradients + offset);
  else
    addTo(gradients + offset, sums + offset, count);
  std::fill_n(sums + offset, count, Real(0));
}

template <typename Real> Embedding<Real> StageState<Real>::embedding() const {
  return {{parameters, &embeddingLayout}, {sums, &embeddingLayout}};
}

template <typename Real>
Block<Real> StageState<Real>::block(size_t index, Real *kept,
                                    Real *probabilities) const {
  size_t start = firstBlock + index * blockLayout.tensors.back();
  return {{parameters + start, &blockLayout.tensors},
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
  const Pieces<Real, kHeadTensors> added = {sums + headStart,
                                            &headLayout.tensors};
  return {weights,
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

template <typename Real> void StageState<Real>::beginStep() {
  if (config.trained) {
    std::fill_n(gradients, needs.gradients, Real(0));
    std::fill_n(sums, needs.gradients, Real(0));
    if (config.clipNorm > 0)
      std::fill_n(norms, tensorPositions(config), 0.0);
  }
  byInput = byWeight = {};
  lossSum = 0;
  lossCount = 0;
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
    std::copy_n(as<Real>(call.inputs[0]), needs.input, place);
}

/// Computes blocks and head in what the call keeps, from the first's input on;
/// returns the loss.
template <typename Real>
double StageState<Real>::fill(const sluice_call &call) const {
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, call).forward(config, inputOf(i + 1, call), workspace);
  return config.head ? head(call).forward(batch(call), headInput(call)) : 0;
}

/// Computes blocks and head one after the other in the workspace, so that only
/// the checkpoint and the output are left; returns the loss.
template <typename Real>
double StageState<Real>::passThrough(const sluice_call &call) const {
  Real *output = config.head ? workspace : as<Real>(call.outputs[0]);
  Real *input = config.stageLayers > 0 ? workspace : output;
  takeInput(call, input);
  if (!config.embedding)
    std::copy_n(input, needs.input, as<Real>(call.checkpoint));
  Real *scratch = workspace + blockLayout.kept.back();
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, workspace, nullptr)
        .forward(config, i + 1 < config.stageLayers ? workspace : output,
                 scratch);
  Real *kept = workspace + config.tokens() * config.hidden;
  return config.head ? head(kept).forward(batch(call), workspace) : 0;
}

template <typename Real>
void StageState<Real>::forward(const sluice_call &given) {
  const sluice_call call = withScratch(given);
  double loss = 0;
  if (config.isFull()) {
    loss = passThrough(call);
  } else {
    takeInput(call, inputOf(0, call));
    loss = fill(call);
  }
  if (config.head) {
    lossSum += loss;
    ++lossCount;
  }
}

template <typename Real>
void StageState<Real>::recompute(const sluice_call &call) {
  if (config.isSelective()) {
    if (!config.flashAttention)
      for (size_t i = 0; i < config.stageLayers; ++i)
        block(i, call).remakeProbabilities(config);
    return;
  }
  if (config.stageLayers == 0 && !config.head)
    return; // an embedding keeps nothing
  sluice_call again = call;
  again.inputs = &call.checkpoint;
  takeInput(again, inputOf(0, again));
  fill(again);
}

template <typename Real>
void StageState<Real>::backwardInput(const sluice_call &call) {
  const size_t elements = config.tokens() * config.hidden;
  if (config.embedding && config.stageLayers == 0 && !config.head) {
    embedding().backward(batch(call), as<Real>(call.output_gradients[0]));
    return endCall(byInput, call);
  }
  // The gradient as it walks from the last layer to the first.
  Real *chain =
      config.embedding ? workspace : as<Real>(call.input_gradients[0]);
  Real *scratch = config.embedding ? workspace + elements : workspace;
  if (config.head)
    head(call).backwardInput(config, headInput(call), chain, scratch);
  else
    std::copy_n(as<Real>(call.output_gradients[0]), elements, chain);
  for (size_t i = config.stageLayers; i-- > 0;)
    block(i, call).backwardInput(config, chain, scratch);
  if (config.embedding)
    embedding().backward(batch(call), chain);
  endCall(byInput, call);
}

template <typename Real>
void StageState<Real>::backwardWeight(const sluice_call &call) {
  for (size_t i = 0; i < config.stageLayers; ++i)
    block(i, call).backwardWeight(config);
  if (config.head)
    head(call).backwardWeight(config);
  endCall(byWeight, call);
}

template <typename Real>
Status StageState<Real>::addGradients(const sluice_buffer &other) {
  if (Status status = checkGroupsWhole(); !status.ok())
    return status;
  if (other.bytes < bytesOf<Real>(needs.gradients))
    return Status::input("the other copy's gradients have " +
                         std::to_string(other.bytes) + " bytes, not " +
                         std::to_string(bytesOf<Real>(needs.gradients)));
  const Real *more = as<Real>(other);
  for (size_t i = 0; i < needs.gradients; ++i)
    gradients[i] += more[i];
  return {};
}

/// The table of tokens is the first tensor. Embedding and head have summed its
/// gradients apart, and they stay so: another stage may still read them.
template <typename Real>
Status StageState<Real>::tiedPart(const sluice_buffer *tied,
                                  const Real *&more) const {
  more = nullptr;
  if (config.sharesTable()) {
    if (!tied || tied->bytes < bytesOf<Real>(config.table()))
      return Status::input("the step gets " +
                           std::to_string(tied ? tied->bytes : 0) +
                           " bytes of the tied gradients, not " +
                           std::to_string(bytesOf<Real>(config.table())));
    more = as<Real>(*tied);
  } else if (config.tied && config.head) {
    more = gradients + outputGradients();
  }
  return checkGroupsWhole();
}

template <typename Real>
Status StageState<Real>::normGradients(const sluice_buffer *tied) {
  const Real *more = nullptr;
  if (Status status = tiedPart(tied, more); !status.ok())
    return status;
  if (config.clipNorm <= 0)
    return Status::input("norms are asked for, but the run has no clip_norm");
  const bool othersTable = config.sharesTable() && !config.embedding;
  for (const Tensor &t : table)
    if (t.offset != 0 || !othersTable)
      norms[t.position] = sumOfSquares(
          Sum<Real>{gradients + t.offset, t.offset == 0 ? more : nullptr},
          t.elements);
  return {};
}

/// Over the tensors in order of the model.
template <typename Real> double StageState<Real>::clippedBy() const {
  if (config.clipNorm <= 0)
    return 1;
  double sum = 0;
  for (uint64_t i = 0; i < tensorPositions(config); ++i)
    sum += norms[i];
  return clipFactor(std::sqrt(sum), config.clipNorm);
}

template <typename Real>
Status StageState<Real>::optimizerStep(uint64_t step,
                                       const sluice_buffer *tied) {
  const Real *more = nullptr;
  if (Status status = tiedPart(tied, more); !status.ok())
    return status;
  const AdamW adamW(config.learningRate, step, clippedBy());
  for (const Tensor &t : table)
    stepTensor(t, adamW, t.offset == 0 ? more : nullptr);
  return {};
}

/// Steps as much of the tensor as is in the part at hand.
template <typename Real>
void StageState<Real>::stepTensor(const Tensor &t, const AdamW &adamW,
                                  const Real *more) {
  const size_t begin = std::max(t.offset, partBegin);
  const size_t end = std::min(t.offset + t.elements, partBegin + part);
  if (begin >= end)
    return;
  Real *const mean = optimizer + (begin - partBegin);
  const Sum<Real> sum = {gradients + begin,
                         more ? more + (begin - t.offset) : nullptr};
  adamW.update(parameters + begin, sum, mean, mean + part, end - begin,
               t.matrix);
}

template <typename Real> bool StageState<Real>::loss(double &mean) const {
  if (lossCount == 0)
    return false;
  mean = lossSum / double(lossCount);
  return true;
}

template <typename Real>
Status StageState<Real>::tensor(uint32_t index, sluice_tensor &result) {
  if (index >= table.size())
    return Status::environment("there is no tensor " + std::to_string(index) +
                               " of " + std::to_string(table.size()));
  const Tensor &t = table[index];
  const uint64_t size = t.elements * sizeof(Real);
  result = {};
  result.name = t.name.c_str();
  result.position = t.position;
  result.data = parameters + t.offset;
  result.bytes = size;
  if (config.trained && config.optimizerParts == 1)
    for (size_t moment = 0; moment < kMoments; ++moment)
      result.states[result.state_count++] = {
          optimizer + moment * needs.parameters + t.offset, size};
  return Status();
}

template class StageState<float>;
template class StageState<double>;

} // namespace sluice::gpt
