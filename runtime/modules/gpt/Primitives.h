//===- runtime/modules/gpt/Primitives.h - What a stage is computed with ---===//
//
// The model is written once, in these steps. On the CPU each is done when it is
// called; on a device it is enqueued, and memory that a stage is given cannot
// be read by the host.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_PRIMITIVES_H
#define SLUICE_RUNTIME_MODULES_GPT_PRIMITIVES_H

#include "ir/Status.h"
#include "runtime/modules/gpt/BFloat16.h"
#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"
#include "runtime/modules/gpt/Text.h"
#include "runtime/sluice.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::gpt {

/// Memory that a step may use while it runs, in elements.
template <typename Real> struct Scratch {
  Real *data = nullptr;
  size_t elements = 0;
  Scratch after(size_t count) const { return {data + count, elements - count}; }
};

/// So many products in one call; from one to the next, each operand is so many
/// elements further on.
struct Batches {
  size_t count = 1, a = 0, b = 0, c = 0;
};

/// What AdamW changes: `count` elements from the same place of each buffer.
template <typename Real> struct Trained {
  Real *parameters;
  /// The same in the gradients' type; null where that is the parameters' own.
  GradientOf<Real> *master;
  Sum<GradientOf<Real>> gradients;
  GradientOf<Real> *mean, *square;
  size_t count;
  bool decay;
};

/// Of one stage, which calls it from one thread. Activations and parameters are
/// of type Real, gradients of the parameters of type Gradient.
template <typename Real> class Primitives {
public:
  using Gradient = GradientOf<Real>;
  virtual ~Primitives() = default;

  //===--------------------------------------------------------------------===//
  // Around steps
  //===--------------------------------------------------------------------===//

  /// Before the stage has memory.
  virtual Status prepare(const Config &config, const sluice_stage &stage) = 0;
  /// Bytes of sluice_bytes::host.
  virtual uint64_t hostBytes() const { return 0; }
  /// Once the stage has memory, from the thread that calls the stage.
  virtual Status bind(const sluice_buffer &) { return {}; }
  /// Whether the host may use the stage's memory, and calls end at once.
  virtual bool isImmediate() const { return true; }
  /// Copies between the host's memory and the stage's, and waits for it;
  /// between steps only.
  virtual Status upload(void *to, const void *from, uint64_t bytes) = 0;
  virtual Status download(void *to, const void *from, uint64_t bytes) = 0;
  /// Clears memory and waits for it; between steps only.
  virtual Status clearNow(void *data, uint64_t bytes) = 0;
  /// What the calls of the step need to know, as long as they run.
  virtual void beginStep(const Config &config, const Text &text,
                         uint64_t step) = 0;
  /// All that follows is in the order of `stream`.
  virtual void use(void *) {}
  /// The first failure since it was last asked.
  virtual Status status() { return {}; }
  /// Whether crossEntropy has counted a loss in this step; their mean.
  virtual bool loss(double &mean) const = 0;

  //===--------------------------------------------------------------------===//
  // Bytes and gradients
  //===--------------------------------------------------------------------===//

  virtual void clear(void *data, uint64_t bytes) = 0;
  virtual void copy(void *to, const void *from, uint64_t bytes) = 0;
  virtual void swap(Real *a, Real *b, size_t count) = 0;
  /// sum += a.
  virtual void add(Gradient *sum, const Gradient *a, size_t count) = 0;
  /// Adds the rows of a to sum, in an order that depends on nothing else.
  virtual void addRows(Gradient *sum, const Real *a, size_t rows, size_t width,
                       Scratch<Real> scratch) = 0;

  //===--------------------------------------------------------------------===//
  // Products
  //===--------------------------------------------------------------------===//

  /// c = a b, with rows of c `stride` apart. c overlaps neither.
  virtual void multiply(Matrix<Real> a, Matrix<Real> b, Real *c, size_t stride,
                        const Batches &batches) = 0;
  void multiply(Matrix<Real> a, Matrix<Real> b, Real *c) {
    multiply(a, b, c, b.columns, {});
  }
  /// c += a b, with c's rows one after the other.
  virtual void accumulate(Matrix<Real> a, Matrix<Real> b, Gradient *c) = 0;
  /// y = x weightᵀ + bias (+ residual, unless that is null); the weight is
  /// stored `outputs` x `inputs`. y overlaps none of them.
  virtual void linear(size_t tokens, const Real *x, size_t inputs,
                      const Real *weight, const Real *bias, size_t outputs,
                      const Real *residual, Real *y) = 0;
  /// How many of so many products are best made in one call.
  virtual size_t atOnce(size_t products) const = 0;

  //===--------------------------------------------------------------------===//
  // The model, formulas as in Kernels.h
  //===--------------------------------------------------------------------===//

  virtual void layerNorm(const Real *x, const Real *weight, const Real *bias,
                         Real *output, size_t rows, size_t width) = 0;
  /// The gradient at the norm's input, which may take the place of x, given
  /// that at its output; plus `residual` if that is not null. Adds to the
  /// gradients of weight and bias. The scratch may be inputGradient, if that is
  /// not x.
  virtual void layerNormBackward(const Real *x, const Real *weight,
                                 const Real *outputGradient,
                                 const Real *residual, Real *inputGradient,
                                 Gradient *weightGradient,
                                 Gradient *biasGradient, size_t rows,
                                 size_t width, Scratch<Real> scratch) = 0;
  virtual void gelu(const Real *x, Real *output, size_t count) = 0;
  virtual void geluBackward(Real *x, const Real *outputGradient,
                            size_t count) = 0;
  /// Of `matrices` square ones that stand one after the other.
  virtual void causalSoftmax(Real *scores, size_t matrices, size_t size,
                             double scale) = 0;
  virtual void causalSoftmaxBackward(const Real *probabilities, Real *gradients,
                                     size_t matrices, size_t size,
                                     double scale) = 0;
  /// `heads` matrices of `rows` x `width`, one after the other, to where they
  /// stand side by side, in rows `stride` apart.
  virtual void placeHeads(const Real *from, Real *to, size_t heads, size_t rows,
                          size_t width, size_t stride) = 0;
  virtual void embed(const Batch &batch, const Real *token,
                     const Real *position, Real *output) = 0;
  virtual void embedBackward(const Batch &batch, const Real *outputGradient,
                             Gradient *token, Gradient *position) = 0;
  /// Replaces the logits of the batch's tokens by their gradients times
  /// `scale`. Where it counts, the mean loss of the batch is one of the step's.
  virtual void crossEntropy(const Batch &batch, Real *logits, double scale,
                            bool counts) = 0;

  //===--------------------------------------------------------------------===//
  // The optimizer
  //===--------------------------------------------------------------------===//

  virtual void sumOfSquares(Sum<Gradient> gradients, size_t count,
                            double *sum) = 0;
  /// The step multiplies gradients by what clipFactor says of the root of the
  /// sum of the norms.
  virtual void clip(const double *norms, size_t count, double limit) = 0;
  virtual void adamW(const Trained<Real> &trained) = 0;
};

/// Those of the CPU; float and double.
template <typename Real> std::unique_ptr<Primitives<Real>> makeHostPrimitives();

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_PRIMITIVES_H
