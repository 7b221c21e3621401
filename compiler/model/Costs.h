//===- compiler/model/Costs.h - Operations and bytes moved ----------------===//
//
// What the layers of a transformer compute and how many bytes they move, by
// kinds of work, and how long a device takes for it: for each kind the longer
// of its operations at the speed of the device and its bytes at the bandwidth
// of its memory (Williams et al., 2009: the roofline). The formulas stand in
// Costs.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_MODEL_COSTS_H
#define SLUICE_COMPILER_MODEL_COSTS_H

#include "compiler/model/Network.h"
#include "compiler/model/Shape.h"
#include "compiler/spec/Spec.h"

#include <vector>

namespace sluice {

/// Costs of one microbatch on one device, kinds that a layer has none of left
/// out. `gradientBytes` are those of a parameter's gradient.
std::vector<PartCost> embeddingCosts(const Shape &shape, Bytes gradientBytes);
std::vector<PartCost> blockCosts(const Shape &shape, const LayerParts &parts,
                                 bool withExperts, Bytes gradientBytes);
std::vector<PartCost> headCosts(const Shape &shape, Bytes gradientBytes);

/// Of those, what makes the attention matrix, where it is stored.
Work scoresWork(const Shape &shape);

/// Operations of all kinds together.
Wide forwardFlops(const std::vector<PartCost> &parts);

/// Messages among the devices of a rank: bytes through one of them, and steps
/// one after the other.
struct Exchange {
  Wide bytes = 0, steps = 0;

  Exchange &operator+=(const Exchange &other) {
    bytes += other.bytes;
    steps += other.steps;
    return *this;
  }
  Exchange operator*(Wide factor) const {
    return {bytes * factor, steps * factor};
  }
};

/// Turns work into ticks: by the speed and the bandwidth of the device, or,
/// without a speed, so that so many operations are one unit. And exchanges, by
/// the link of the group. What is too long is kMaxTicks + 1.
class Clock {
public:
  Clock(const ClusterSpec &cluster, Wide flopsOfUnit);

  /// Of one kind of work.
  Ticks ticks(const Work &work) const;
  /// Of all kinds, one after the other, rounded once.
  Ticks ticks(const std::vector<PartCost> &parts, CostPass pass) const;
  Ticks ticks(const Exchange &exchange) const;
  /// Whether it is the bytes that a kind of work takes its time for.
  bool boundByBytes(const Work &work) const;

private:
  double seconds(const Work &work) const;

  Wide unitFlops;
  double flopsPerSecond = 0; ///< 0: in abstract units
  double bytesPerSecond = 0; ///< 0: bytes are free
  Link link;
};

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_COSTS_H
