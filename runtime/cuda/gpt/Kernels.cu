//===- runtime/cuda/gpt/Kernels.cu - The model's own kernels --------------===//
#include "runtime/cuda/gpt/Kernels.h"

#include "runtime/cuda/Launch.h"

#include <cmath>

namespace sluice::runtime::cuda::kernels {

using gpt::BFloat16;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

template <typename Real> struct Swap {
  Real *a, *b;
  SLUICE_DEVICE void operator()(size_t i) const {
    const Real kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
};

template <typename Real>
cudaError_t swap(cudaStream_t stream, Real *a, Real *b, size_t count) {
  return forEach(stream, count, Swap<Real>{a, b},
                 {writes(a, count), writes(b, count)});
}

struct Add {
  float *sum;
  const float *a;
  SLUICE_DEVICE void operator()(size_t i) const { sum[i] += a[i]; }
};

cudaError_t add(cudaStream_t stream, float *sum, const float *a, size_t count) {
  return forEach(stream, count, Add{sum, a},
                 {writes(sum, count), reads(a, count)});
}

/// gelu(x) = x gate(x), gate = 1 / (1 + e^-2u), u = √(2/π) (x + 0.044715 x³).
SLUICE_DEVICE static float geluGate(float x) {
  const float twice = 1.5957691216f * (x + 0.044715f * x * x * x);
  return 1.0f / (1.0f + expf(-twice));
}

template <typename Real> struct Gelu {
  const Real *x;
  Real *output;
  SLUICE_DEVICE void operator()(size_t i) const {
    const float value = x[i];
    output[i] = Real(value * geluGate(value));
  }
};

template <typename Real>
cudaError_t gelu(cudaStream_t stream, const Real *x, Real *output,
                 size_t count) {
  return forEach(stream, count, Gelu<Real>{x, output},
                 {reads(x, count), writes(output, count)});
}

template <typename Real> struct GeluBackward {
  Real *x;
  const Real *gradient;
  SLUICE_DEVICE void operator()(size_t i) const {
    const float value = x[i];
    const float gate = geluGate(value);
    const float slope =
        1.5957691216f * (1.0f + 3.0f * 0.044715f * value * value);
    x[i] = Real(float(gradient[i]) *
                (gate + value * gate * (1.0f - gate) * slope));
  }
};

template <typename Real>
cudaError_t geluBackward(cudaStream_t stream, Real *x,
                         const Real *outputGradient, size_t count) {
  return forEach(stream, count, GeluBackward<Real>{x, outputGradient},
                 {writes(x, count), reads(outputGradient, count)});
}

template <typename Real> struct PlaceHeads {
  const Real *from;
  Real *to;
  size_t rows, width, stride;
  SLUICE_DEVICE void operator()(size_t i) const {
    const size_t column = i % width, row = i / width % rows;
    const size_t head = i / width / rows;
    to[row * stride + head * width + column] = from[i];
  }
};

template <typename Real>
cudaError_t placeHeads(cudaStream_t stream, const Real *from, Real *to,
                       size_t heads, size_t rows, size_t width, size_t stride) {
  const size_t count = heads * rows * width;
  return forEach(
      stream, count, PlaceHeads<Real>{from, to, rows, width, stride},
      {reads(from, count), writes(to, (rows - 1) * stride + heads * width)});
}

//===----------------------------------------------------------------------===//
// Sums over rows
//===----------------------------------------------------------------------===//

/// So many rows are summed by one thread, where there is room for the sums.
static constexpr size_t kChunkRows = 64;

/// Sums over rows are made chunk by chunk, `sums` of them for each column.
struct Chunks {
  float *data; ///< null: one chunk, which is added to its target at once
  size_t count, rows;

  Chunks(size_t allRows, size_t width, size_t sums, Room room)
      : data(room.data), count((allRows + kChunkRows - 1) / kChunkRows),
        rows(kChunkRows) {
    if (count > 1 && count * width * sums <= room.count)
      return;
    data = nullptr;
    count = 1;
    rows = allRows;
  }
};

/// target[j] += the sum over chunks of column j.
struct AddChunks {
  const float *chunks;
  size_t count, step;
  float *target;
  SLUICE_DEVICE void operator()(size_t column) const {
    float sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += chunks[i * step + column];
    target[column] += sum;
  }
};

static cudaError_t addChunks(cudaStream_t stream, const Chunks &chunks,
                             const float *first, size_t step, size_t width,
                             float *target) {
  return forEach(
      stream, width, AddChunks{first, chunks.count, step, target},
      {reads(first, (chunks.count - 1) * step + width), writes(target, width)});
}

template <typename Real> struct SumRows {
  const Real *a;
  size_t rows, width, chunkRows;
  float *chunks, *sum;
  SLUICE_DEVICE void operator()(size_t i) const {
    const size_t column = i % width, chunk = i / width;
    const size_t begin = chunk * chunkRows;
    const size_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
    float value = 0;
    for (size_t row = begin; row < end; ++row)
      value += float(a[row * width + column]);
    if (chunks)
      chunks[i] = value;
    else
      sum[column] += value;
  }
};

template <typename Real>
cudaError_t addRows(cudaStream_t stream, float *sum, const Real *a, size_t rows,
                    size_t width, Room room) {
  const Chunks chunks(rows, width, 1, room);
  const size_t count = chunks.count * width;
  const SumRows<Real> body = {a, rows, width, chunks.rows, chunks.data, sum};
  cudaError_t code =
      forEach(stream, count, body,
              {reads(a, rows * width), writes(chunks.data, count),
               writes(sum, chunks.data ? 0 : width)});
  if (code != cudaSuccess || !chunks.data)
    return code;
  return addChunks(stream, chunks, chunks.data, width, width, sum);
}

//===----------------------------------------------------------------------===//
// Layer norm
//===----------------------------------------------------------------------===//

/// A thread by itself, where a body over indices needs what a team makes.
struct Alone {
  SLUICE_DEVICE static constexpr unsigned thread() { return 0; }
  SLUICE_DEVICE static constexpr unsigned size() { return 1; }
  template <typename T> SLUICE_DEVICE T sum(T value) const { return value; }
};

/// Of a row: mean and inverse deviation.
struct Moments {
  float mean, inverse;
};

template <typename Real, typename Team>
SLUICE_DEVICE static Moments momentsOf(const Real *x, size_t width,
                                       const Team &team) {
  float sum = 0;
  for (size_t i = team.thread(); i < width; i += team.size())
    sum += float(x[i]);
  const float mean = team.sum(sum) / float(width);
  float squares = 0;
  for (size_t i = team.thread(); i < width; i += team.size())
    squares += (float(x[i]) - mean) * (float(x[i]) - mean);
  const float variance = team.sum(squares) / float(width);
  return {mean, 1.0f / sqrtf(variance + 1e-5f)};
}

template <typename Real> struct LayerNorm {
  const Real *x, *weight, *bias;
  Real *output;
  size_t width;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const Real *from = x + row * width;
    const Moments of = momentsOf(from, width, team);
    for (size_t i = team.thread(); i < width; i += team.size())
      output[row * width + i] =
          Real((float(from[i]) - of.mean) * of.inverse * float(weight[i]) +
               float(bias[i]));
  }
};

template <typename Real>
cudaError_t layerNorm(cudaStream_t stream, const Real *x, const Real *weight,
                      const Real *bias, Real *output, size_t rows,
                      size_t width) {
  return forEachRow(stream, rows,
                    LayerNorm<Real>{x, weight, bias, output, width},
                    {reads(x, rows * width), reads(weight, width),
                     reads(bias, width), writes(output, rows * width)});
}

template <typename Real> struct NoteMoments {
  const Real *x;
  Moments *moments;
  size_t width;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const Moments of = momentsOf(x + row * width, width, team);
    if (team.thread() == 0)
      moments[row] = of;
  }
};

/// The gradients of weight and bias, by the gradient at the output and the
/// normed rows.
template <typename Real> struct SumNormRows {
  const Real *x, *gradient;
  const Moments *moments; ///< null: made here
  size_t rows, width, chunkRows;
  float *chunks; ///< weight's and bias's in turn
  float *weightGradient, *biasGradient;
  SLUICE_DEVICE void operator()(size_t i) const {
    const size_t column = i % width, chunk = i / width;
    const size_t begin = chunk * chunkRows;
    const size_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
    float weight = 0, bias = 0;
    for (size_t row = begin; row < end; ++row) {
      const Moments of =
          moments ? moments[row] : momentsOf(x + row * width, width, Alone());
      const size_t at = row * width + column;
      weight += float(gradient[at]) * ((float(x[at]) - of.mean) * of.inverse);
      bias += float(gradient[at]);
    }
    if (chunks) {
      chunks[2 * chunk * width + column] = weight;
      chunks[(2 * chunk + 1) * width + column] = bias;
    } else {
      weightGradient[column] += weight;
      biasGradient[column] += bias;
    }
  }
};

/// (g - mean(g) - n mean(g n)) / deviation, with g the output's gradient times
/// weight and n the normed row; plus the residual.
template <typename Real> struct LayerNormBackward {
  const Real *x, *weight, *gradient, *residual;
  Real *result;
  size_t width;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const size_t at = row * width;
    const Moments of = momentsOf(x + at, width, team);
    float shift = 0, slope = 0;
    for (size_t i = team.thread(); i < width; i += team.size()) {
      const float g = float(gradient[at + i]) * float(weight[i]);
      shift += g;
      slope += g * ((float(x[at + i]) - of.mean) * of.inverse);
    }
    shift = team.sum(shift) / float(width);
    slope = team.sum(slope) / float(width);
    for (size_t i = team.thread(); i < width; i += team.size()) {
      const float normed = (float(x[at + i]) - of.mean) * of.inverse;
      float value = of.inverse * (float(gradient[at + i]) * float(weight[i]) -
                                  shift - normed * slope);
      if (residual)
        value += float(residual[at + i]);
      result[at + i] = Real(value);
    }
  }
};

/// The room may be where the result goes: what is in it is used up before.
template <typename Real>
cudaError_t layerNormBackward(cudaStream_t stream, const Real *x,
                              const Real *weight, const Real *outputGradient,
                              const Real *residual, Real *inputGradient,
                              float *weightGradient, float *biasGradient,
                              size_t rows, size_t width, Room room) {
  const size_t all = rows * width;
  Moments *moments = nullptr;
  cudaError_t code = cudaSuccess;
  if (room.count >= 2 * rows) {
    moments = reinterpret_cast<Moments *>(room.data);
    room = {room.data + 2 * rows, room.count - 2 * rows};
    code = forEachRow(stream, rows, NoteMoments<Real>{x, moments, width},
                      {reads(x, all), writes(moments, rows)});
  } else {
    room = {};
  }
  if (code != cudaSuccess)
    return code;
  const Chunks chunks(rows, width, 2, room);
  const size_t sums = chunks.data ? 0 : width;
  code = forEach(
      stream, chunks.count * width,
      SumNormRows<Real>{x, outputGradient, moments, rows, width, chunks.rows,
                        chunks.data, weightGradient, biasGradient},
      {reads(x, all), reads(outputGradient, all), reads(moments, rows),
       writes(chunks.data, 2 * chunks.count * width),
       writes(weightGradient, sums), writes(biasGradient, sums)});
  if (code == cudaSuccess && chunks.data)
    code = addChunks(stream, chunks, chunks.data, 2 * width, width,
                     weightGradient);
  if (code == cudaSuccess && chunks.data)
    code = addChunks(stream, chunks, chunks.data + width, 2 * width, width,
                     biasGradient);
  if (code != cudaSuccess)
    return code;
  return forEachRow(stream, rows,
                    LayerNormBackward<Real>{x, weight, outputGradient, residual,
                                            inputGradient, width},
                    {reads(x, all), reads(weight, width),
                     reads(outputGradient, all), reads(residual, all),
                     writes(inputGradient, all)});
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// Row i of each matrix over its first i + 1 elements; the others become 0.
template <typename Real> struct CausalSoftmax {
  Real *scores;
  size_t size;
  float scale;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    Real *of = scores + row * size;
    const size_t visible = row % size + 1;
    float peak = of[0];
    for (size_t i = team.thread(); i < visible; i += team.size())
      peak = float(of[i]) > peak ? float(of[i]) : peak;
    peak = team.largest(peak);
    float sum = 0;
    for (size_t i = team.thread(); i < visible; i += team.size())
      sum += expf((float(of[i]) - peak) * scale);
    const float inverse = 1.0f / team.sum(sum);
    for (size_t i = team.thread(); i < size; i += team.size())
      of[i] = Real(i < visible ? expf((float(of[i]) - peak) * scale) * inverse
                               : 0.0f);
  }
};

template <typename Real>
cudaError_t causalSoftmax(cudaStream_t stream, Real *scores, size_t matrices,
                          size_t size, float scale) {
  return forEachRow(stream, matrices * size,
                    CausalSoftmax<Real>{scores, size, scale},
                    {writes(scores, matrices * size * size)});
}

template <typename Real> struct CausalSoftmaxBackward {
  const Real *probabilities;
  Real *gradients;
  size_t size;
  float scale;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const Real *p = probabilities + row * size;
    Real *g = gradients + row * size;
    const size_t visible = row % size + 1;
    float mean = 0;
    for (size_t i = team.thread(); i < visible; i += team.size())
      mean += float(p[i]) * float(g[i]);
    mean = team.sum(mean);
    for (size_t i = team.thread(); i < size; i += team.size())
      g[i] =
          Real(i < visible ? float(p[i]) * (float(g[i]) - mean) * scale : 0.0f);
  }
};

template <typename Real>
cudaError_t causalSoftmaxBackward(cudaStream_t stream,
                                  const Real *probabilities, Real *gradients,
                                  size_t matrices, size_t size, float scale) {
  const size_t all = matrices * size * size;
  return forEachRow(
      stream, matrices * size,
      CausalSoftmaxBackward<Real>{probabilities, gradients, size, scale},
      {reads(probabilities, all), writes(gradients, all)});
}

//===----------------------------------------------------------------------===//
// Ends
//===----------------------------------------------------------------------===//

template <typename Real> struct Embed {
  const uint8_t *inputs;
  const Real *token, *position;
  Real *output;
  size_t sequence, width;
  SLUICE_DEVICE void operator()(size_t i) const {
    const size_t column = i % width, row = i / width;
    output[i] = Real(float(token[inputs[row] * width + column]) +
                     float(position[row % sequence * width + column]));
  }
};

template <typename Real>
cudaError_t embed(cudaStream_t stream, const uint8_t *inputs, const Real *token,
                  const Real *position, Real *output, size_t tokens,
                  size_t sequence, size_t width) {
  return forEach(stream, tokens * width,
                 Embed<Real>{inputs, token, position, output, sequence, width},
                 {reads(inputs, tokens), reads(token, width),
                  reads(position, sequence * width),
                  writes(output, tokens * width)});
}

template <typename Real> struct EmbedTokensBackward {
  BatchData batch;
  const Real *gradient;
  float *token;
  size_t width;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t value, const Team &team) const {
    const uint32_t begin = batch.starts[value], end = batch.starts[value + 1];
    if (begin == end)
      return;
    for (size_t column = team.thread(); column < width; column += team.size()) {
      float sum = token[value * width + column];
      for (uint32_t i = begin; i < end; ++i)
        sum += float(gradient[batch.order[i] * width + column]);
      token[value * width + column] = sum;
    }
  }
};

template <typename Real>
cudaError_t embedTokensBackward(cudaStream_t stream, const BatchData &batch,
                                const Real *outputGradient, float *token,
                                size_t tokens, size_t values, size_t width) {
  return forEachRow(
      stream, values,
      EmbedTokensBackward<Real>{batch, outputGradient, token, width},
      {reads(outputGradient, tokens * width),
       reads(batch.starts, kTokenValues + 1), reads(batch.order, tokens),
       writes(token, values * width)});
}

template <typename Real> struct EmbedPositionsBackward {
  const Real *gradient;
  float *position;
  size_t tokens, step; ///< elements of a sequence
  size_t width;
  SLUICE_DEVICE void operator()(size_t i) const {
    float sum = position[i];
    for (size_t at = i; at < tokens * width; at += step)
      sum += float(gradient[at]);
    position[i] = sum;
  }
};

template <typename Real>
cudaError_t embedPositionsBackward(cudaStream_t stream,
                                   const Real *outputGradient, float *position,
                                   size_t tokens, size_t sequence,
                                   size_t width) {
  const size_t step = sequence * width;
  return forEach(
      stream, step,
      EmbedPositionsBackward<Real>{outputGradient, position, tokens, step,
                                   width},
      {reads(outputGradient, tokens * width), writes(position, step)});
}

template <typename Real> struct CrossEntropy {
  Real *logits;
  const uint8_t *targets;
  float *losses;
  size_t vocab;
  float scale;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    Real *of = logits + row * vocab;
    const size_t target = targets[row];
    float peak = of[0];
    for (size_t i = team.thread(); i < vocab; i += team.size())
      peak = float(of[i]) > peak ? float(of[i]) : peak;
    peak = team.largest(peak);
    const float chosen = of[target];
    float sum = 0;
    for (size_t i = team.thread(); i < vocab; i += team.size())
      sum += expf(float(of[i]) - peak);
    sum = team.sum(sum); // behind it all have read what is chosen
    const float factor = scale / sum;
    for (size_t i = team.thread(); i < vocab; i += team.size())
      of[i] = Real(expf(float(of[i]) - peak) * factor -
                   (i == target ? scale : 0.0f));
    if (losses && team.thread() == 0)
      losses[row] = logf(sum) + (peak - chosen);
  }
};

template <typename Real>
cudaError_t crossEntropy(cudaStream_t stream, Real *logits,
                         const uint8_t *targets, float *losses, size_t tokens,
                         size_t vocab, float scale) {
  return forEachRow(stream, tokens,
                    CrossEntropy<Real>{logits, targets, losses, vocab, scale},
                    {writes(logits, tokens * vocab), reads(targets, tokens),
                     writes(losses, tokens)});
}

struct CountLoss {
  const float *losses;
  size_t tokens;
  StepData *step;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    double sum = 0;
    for (size_t i = team.thread(); i < tokens; i += team.size())
      sum += double(losses[i]);
    sum = team.sum(sum);
    if (team.thread() != 0)
      return;
    step->lossSum += sum / double(tokens);
    step->lossCount += 1;
  }
};

cudaError_t countLoss(cudaStream_t stream, const float *losses, size_t tokens,
                      StepData *step) {
  return forEachRow(stream, 1, CountLoss{losses, tokens, step},
                    {reads(losses, tokens), writes(step, 1)});
}

//===----------------------------------------------------------------------===//
// The optimizer
//===----------------------------------------------------------------------===//

struct SumSquares {
  const float *part, *other;
  size_t count, each;
  double *sums;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const size_t begin = row * each;
    const size_t end = begin + each < count ? begin + each : count;
    double sum = 0;
    for (size_t i = begin + team.thread(); i < end; i += team.size()) {
      const float gradient = other ? part[i] + other[i] : part[i];
      sum += double(gradient) * double(gradient);
    }
    sum = team.sum(sum);
    if (team.thread() == 0)
      sums[row] = sum;
  }
};

struct SumParts {
  const double *parts;
  size_t count;
  double *sum;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    double all = 0;
    for (size_t i = team.thread(); i < count; i += team.size())
      all += parts[i];
    all = team.sum(all);
    if (team.thread() == 0)
      *sum = all;
  }
};

cudaError_t sumOfSquares(cudaStream_t stream, const float *part,
                         const float *other, size_t count, double *sum,
                         StepData *step) {
  constexpr size_t kLeast = 16384; // elements that are worth a part
  size_t parts = (count + kLeast - 1) / kLeast;
  parts = parts < 1 ? 1 : parts < kPartialSums ? parts : kPartialSums;
  const size_t each = (count + parts - 1) / parts;
  double *const sums = parts == 1 ? sum : step->partialSums;
  const cudaError_t code = forEachRow(
      stream, parts, SumSquares{part, other, count, each, sums},
      {reads(part, count), reads(other, count), writes(sums, parts)});
  if (code != cudaSuccess || parts == 1)
    return code;
  return forEachRow(stream, 1, SumParts{sums, parts, sum},
                    {reads(sums, parts), writes(sum, 1)});
}

struct Clip {
  const double *norms;
  size_t count;
  double limit;
  StepData *step;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    double sum = 0;
    for (size_t i = team.thread(); i < count; i += team.size())
      sum += norms[i];
    sum = team.sum(sum);
    const double factor = limit / (sqrt(sum) + 1e-6);
    if (team.thread() == 0)
      step->factor = float(factor < 1.0 ? factor : 1.0);
  }
};

cudaError_t clip(cudaStream_t stream, const double *norms, size_t count,
                 double limit, StepData *step) {
  return forEachRow(stream, 1, Clip{norms, count, limit, step},
                    {reads(norms, count), writes(&step->factor, 1)});
}

SLUICE_DEVICE static void store(float *, float *parameters, size_t i,
                                float value) {
  parameters[i] = value;
}
SLUICE_DEVICE static void store(float *master, BFloat16 *parameters, size_t i,
                                float value) {
  master[i] = value;
  parameters[i] = BFloat16(value);
}

/// Kernels.h of the module has the formula and where it comes from.
template <typename Real> struct AdamW {
  Real *parameters;
  float *master;
  const float *gradients, *other;
  float *mean, *square;
  bool decay;
  const StepData *step;
  SLUICE_DEVICE void operator()(size_t i) const {
    float gradient = other ? gradients[i] + other[i] : gradients[i];
    gradient *= step->factor;
    const float m = 0.9f * mean[i] + float(1 - 0.9) * gradient;
    const float v = 0.95f * square[i] + float(1 - 0.95) * gradient * gradient;
    mean[i] = m;
    square[i] = v;
    const float old = master ? master[i] : float(parameters[i]);
    store(master, parameters, i,
          (decay ? step->keepDecayed : step->keep) * old -
              step->rate * (m * step->meanCorrection) /
                  (sqrtf(v * step->squareCorrection) + 1e-8f));
  }
};

template <typename Real>
cudaError_t adamW(cudaStream_t stream, Real *parameters, float *master,
                  const float *gradients, const float *other, float *mean,
                  float *square, size_t count, bool decay,
                  const StepData *step) {
  return forEach(stream, count,
                 AdamW<Real>{parameters, master, gradients, other, mean, square,
                             decay, step},
                 {writes(parameters, count), writes(master, count),
                  reads(gradients, count), reads(other, count),
                  writes(mean, count), writes(square, count), reads(step, 1)});
}

//===----------------------------------------------------------------------===//
// For both types
//===----------------------------------------------------------------------===//

// NOLINTBEGIN(bugprone-macro-parentheses): a type
#define SLUICE_INSTANTIATE(Real)                                               \
  template cudaError_t swap(cudaStream_t, Real *, Real *, size_t);             \
  template cudaError_t addRows(cudaStream_t, float *, const Real *, size_t,    \
                               size_t, Room);                                  \
  template cudaError_t layerNorm(cudaStream_t, const Real *, const Real *,     \
                                 const Real *, Real *, size_t, size_t);        \
  template cudaError_t layerNormBackward(                                      \
      cudaStream_t, const Real *, const Real *, const Real *, const Real *,    \
      Real *, float *, float *, size_t, size_t, Room);                         \
  template cudaError_t gelu(cudaStream_t, const Real *, Real *, size_t);       \
  template cudaError_t geluBackward(cudaStream_t, Real *, const Real *,        \
                                    size_t);                                   \
  template cudaError_t causalSoftmax(cudaStream_t, Real *, size_t, size_t,     \
                                     float);                                   \
  template cudaError_t causalSoftmaxBackward(cudaStream_t, const Real *,       \
                                             Real *, size_t, size_t, float);   \
  template cudaError_t placeHeads(cudaStream_t, const Real *, Real *, size_t,  \
                                  size_t, size_t, size_t);                     \
  template cudaError_t embed(cudaStream_t, const uint8_t *, const Real *,      \
                             const Real *, Real *, size_t, size_t, size_t);    \
  template cudaError_t embedTokensBackward(cudaStream_t, const BatchData &,    \
                                           const Real *, float *, size_t,      \
                                           size_t, size_t);                    \
  template cudaError_t embedPositionsBackward(                                 \
      cudaStream_t, const Real *, float *, size_t, size_t, size_t);            \
  template cudaError_t crossEntropy(cudaStream_t, Real *, const uint8_t *,     \
                                    float *, size_t, size_t, float);           \
  template cudaError_t adamW(cudaStream_t, Real *, float *, const float *,     \
                             const float *, float *, float *, size_t, bool,    \
                             const StepData *);
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(BFloat16)
#undef SLUICE_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

} // namespace sluice::runtime::cuda::kernels
