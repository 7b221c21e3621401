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
                                  size_t, size_t, size_t);
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(BFloat16)
#undef SLUICE_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

} // namespace sluice::runtime::cuda::kernels
