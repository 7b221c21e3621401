//===- tools/sluice/main.cpp - The command `sluice` ----------------------===//
#include "ir/AsideFile.h"
#include "tools/sluice/CommandLine.h"
#include "tools/sluice/LargePages.h"

#include "llvm/Support/ErrorHandling.h"

#include <csignal>
#include <new>

/// Leaves nothing half-written behind, then ends as the signal would have.
static void endBySignal(int signal) {
  sluice::dropAsideFiles();
  std::raise(signal); // its own action by now, and held back until we return
}

/// Signals that end a program, unless whoever started it has them ignored; and
/// a limit on the size of files, which a failing write shall tell.
static void handleSignals() {
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = endBySignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) == 0 &&
        before.sa_handler == SIG_DFL)
      sigaction(signal, &action, nullptr);
  }
}

/// LLVM's containers end the program where memory is short, unless told.
static void throwBadAlloc(void *, const char *, bool) {
  throw std::bad_alloc();
}

int main(int argc, char **argv) {
  sluice::useLargePages();
  handleSignals();
  llvm::install_bad_alloc_error_handler(throwBadAlloc);
  return sluice::runCommandLine(argc, argv);
}
