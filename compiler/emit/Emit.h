//===- compiler/emit/Emit.h - Everything that Sluice writes but plans ----===//
//
// Each function writes one format to a stream; none fails, none depends on
// anything but its arguments.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_EMIT_EMIT_H
#define SLUICE_COMPILER_EMIT_EMIT_H

#include "compiler/simulate/Compare.h"
#include "compiler/simulate/Report.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"
#include "ir/Timeline.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace sluice {

/// `rank 0: 0F0 0F1 …`, a line a rank: the order of compute.
void emitOps(const Graph &graph, const Schedule &schedule,
             llvm::raw_ostream &out);

/// PyTorch's schedule CSV, `compute_only`: a row a rank, a cell an operation,
/// no header, lines end in LF. Recomputes are left out: in PyTorch they happen
/// inside of a stage's backward. Only where whyNotTorchCsv says nothing.
void emitTorchCsv(const Graph &graph, const Schedule &schedule,
                  llvm::raw_ostream &out);

/// The same with the messages of `plan`, `compute_comms`, which PyTorch (2.15)
/// takes as it stands; the waits for all sends, and a reduction for each stage
/// that trains, end the row. What ends
/// a step besides (optimizers, gradients of tied stages) is not the schedule's
/// in PyTorch.
void emitTorchCsvComms(const Plan &plan, llvm::raw_ostream &out);

/// Why PyTorch's CSV cannot hold `schedule`; empty if it can. Linear.
std::string whyNotTorchCsv(const Graph &graph, const Schedule &schedule);

/// Chrome's trace format, as Perfetto reads it: pid = rank, tid = stream. One
/// abstract unit of time is shown as a microsecond.
void emitChromeTrace(const Timeline &timeline, llvm::raw_ostream &out);

struct PictureOptions {
  /// The time that fills the width; 0: the timeline's own makespan. Two
  /// pictures with the same one have the same scale.
  Ticks scale = 0;
};

/// A picture of `timeline`, one row a rank. The scale depends on nothing but
/// the time that fills the width, so pictures of equal makespan can be laid
/// side by side. Cells too narrow for it have no number; more cells than pixels
/// are drawn as the share that each operation has of its place, so the size is
/// bounded whatever the number of operations.
void emitSvg(const Timeline &timeline, llvm::raw_ostream &out,
             const PictureOptions &options = {});

/// One self-contained page: the picture and the report.
void emitHtml(const Timeline &timeline, const Report &report,
              llvm::raw_ostream &out, const PictureOptions &options = {});

/// `report --json`; scripts depend on its keys. Times are in `time_unit`,
/// exact.
void emitReportJson(const Report &report, llvm::raw_ostream &out);

/// The same for the spec's own schedule, if it has a report, with the array
/// `compare`.
void emitComparisonJson(const Comparison &comparison, const Report *own,
                        llvm::raw_ostream &out);

/// The array `compare` as an attribute of an object.
void emitCompareArray(const Comparison &comparison, llvm::json::OStream &json);

/// A comparison for people: a table, a row a schedule.
void emitComparisonText(const Comparison &comparison, llvm::raw_ostream &out);

/// A report for people; `withCosts`: also what the times of its layers are made
/// of.
void emitReportText(const Report &report, llvm::raw_ostream &out,
                    bool withCosts = false);

} // namespace sluice

#endif // SLUICE_COMPILER_EMIT_EMIT_H
