// The rows of a schedule CSV as actions, and the plan of them.
#include "ir/text/ActionsPlan.h"
#include "tests/Catch.h"

using namespace sluice;

namespace {

/// What reading `text` and making its plan tells.
std::string toldOf(const std::string &text) {
  Diagnostics diagnostics;
  std::vector<ActionLine> lines =
      linesOfCsv(text, diagnostics.addSource("a.csv", text));
  Actions actions = parseActions(lines, ',', diagnostics);
  if (!diagnostics.hasErrors())
    (void)planOfActions(actions, lines, {}, diagnostics);
  std::string told;
  for (const Diagnostic &each : diagnostics.all())
    told += std::to_string(each.location.line) + ":" +
            std::to_string(each.location.column) + ": " + each.message + "\n";
  return told;
}

} // namespace

TEST_CASE("actions: a wait for a send belongs to the row it stands in") {
  CHECK(toldOf("0F0,0SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n") == "");
  CHECK(toldOf("0F0,0SEND_F0\n0WAIT_SEND_F0,1RECV_F0,1F0\n") ==
        "2:1: this waits for 0SEND_F0, which does not stand before it\n");
  CHECK(toldOf("0WAIT_SEND_F0,0F0,0SEND_F0\n1RECV_F0,1F0\n") ==
        "1:1: this waits for 0SEND_F0, which does not stand before it\n");
}
