//===- tests/cuda/double/Graph.h - Captured steps -------------------------===//
#ifndef SLUICE_TESTS_CUDA_DOUBLE_GRAPH_H
#define SLUICE_TESTS_CUDA_DOUBLE_GRAPH_H

#include "tests/cuda/double/Engine.h"

namespace sluice::cudadouble {

/// Streams whose work is being noted instead of done. The first is the one on
/// which the capture began; others join by waiting for an event of it.
struct Capture {
  std::vector<Stream *> lanes;
  std::vector<std::vector<Item>> items; ///< per lane
  std::vector<VectorClock> clocks;      ///< per lane, over lanes
  std::vector<Launch *> launches;       ///< in the order of the host
  bool invalid = false;

  void join(Stream &stream);
  void note(Stream &stream, Item item);
  /// Whether the first lane has waited for the end of all others.
  bool isJoined() const;
};

/// A captured step: what cudaStreamEndCapture gives.
struct Graph {
  std::vector<std::vector<Item>> items;
  std::vector<Launch *> launches;
};

/// ... made ready to run: one stream a lane. Runs once at a time.
struct GraphRun {
  Graph graph;
  std::vector<Stream *> lanes;

  GraphRun(Engine &engine, const Graph &of, const Stream &first);
  /// Queues all of it behind what `stream` has done.
  void start(Engine &engine, const Stream &stream);
  bool isOver() const;
  /// Lets `stream` go on after all lanes.
  void end(Stream &stream);
};

} // namespace sluice::cudadouble

#endif // SLUICE_TESTS_CUDA_DOUBLE_GRAPH_H
