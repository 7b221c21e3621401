//===- tools/sluice/Processes.h - A run in several processes -------------===//
#ifndef SLUICE_TOOLS_SLUICE_PROCESSES_H
#define SLUICE_TOOLS_SLUICE_PROCESSES_H

#include "ir/Status.h"
#include "runtime/Peers.h"
#include "tools/sluice/CommandLine.h"

#include <atomic>
#include <memory>
#include <string>

namespace sluice {

/// This process among those that a launcher started for a run. Only the first
/// talks: what the others say goes aside, to a file of --log-dir or into
/// memory, until one has something to tell that the first has not.
class Processes {
public:
  /// Finds the backend, by --backend or by who launched this process, and meets
  /// the others where the backend has any. Signals that would end the process
  /// are only noted from then on.
  Status meet(const Arguments &arguments);

  const std::string &backend() const { return name; }
  /// What the first process told all others (BackendFunctions::token).
  const std::string &token() const { return common; }
  /// Null where the run is one process.
  runtime::Peers *peers() const { return others.get(); }
  bool isFirst() const { return !others || others->self() == 0; }
  const std::atomic<int> &signal() const;
  /// From here on a signal that would end the process is only noted, also where
  /// it is alone.
  static void noteSignals();
  /// How long after a signal a run may still need for a checkpoint: as long as
  /// the launcher lets it live, else as long as the timeout.
  double signalGrace(double timeoutSeconds) const;

  /// What this process said aside, and all it says from here on, goes to
  /// standard error.
  void speak();

  /// For a run that did not come to its job: the exit code that all processes
  /// agree on; `code` is this one's, whose fault was told.
  int leave(int code, double timeoutSeconds);

  /// Lets the others end, after all is told.
  void dismissOthers();

  /// Ends in good order, together with the others.
  void part() { others.reset(); }

private:
  Status choose(const Arguments &arguments);
  Status talkAside(const std::string &logDir);

  std::string name, common;
  std::unique_ptr<runtime::Peers> others;
  int aside = -1; ///< file of what was said
  int realError = -1;
};

/// Ends the process at once: after a failed run a thread may still be inside a
/// module.
[[noreturn]] void endProcess(int code);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_PROCESSES_H
