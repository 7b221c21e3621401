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
        "2:1: 0WAIT_SEND_F0 waits for 0SEND_F0, which stands on rank 0\n");
  CHECK(toldOf("0WAIT_SEND_F0,0F0,0SEND_F0\n1RECV_F0,1F0\n") ==
        "1:1: 0WAIT_SEND_F0 waits for 0SEND_F0, which stands behind it\n");
  CHECK(toldOf("0F0,0SEND_F0,0WAIT_SEND_F1\n1RECV_F0,1F0,1WAIT_SEND_F0\n") ==
        "1:14: 0WAIT_SEND_F1 waits for 0SEND_F1, which stands nowhere\n"
        "2:14: 1WAIT_SEND_F0 waits for 1SEND_F0, which stands nowhere\n");
}

TEST_CASE("actions: what moves gradients stands on the rank of its stage") {
  const std::string rows = "0F0,0SEND_F0,0RECV_B0,0B0,%\n"
                           "1RECV_F0,1F0,1B0,1SEND_B0\n";
  auto with = [&](const std::string &cells) {
    std::string text = rows;
    return toldOf(text.replace(text.find('%'), 1, cells));
  };
  CHECK(with("0UNSHARD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD") == "");
  CHECK(with("1REDUCE_GRAD") == "1:27: 1REDUCE_GRAD is on rank 0, but rank 1 "
                                "computes stage 1\n");
  CHECK(with("7RESHARD") ==
        "1:27: 7RESHARD is of stage 7, which nothing computes\n");
  CHECK(with("0WAIT_REDUCE_GRAD") == "1:27: 0WAIT_REDUCE_GRAD waits for "
                                     "0REDUCE_GRAD, which stands nowhere\n");
  CHECK(with("0WAIT_REDUCE_GRAD,0REDUCE_GRAD") ==
        "1:27: 0WAIT_REDUCE_GRAD waits for 0REDUCE_GRAD, which stands behind "
        "it\n");
}

TEST_CASE("actions: a message stands on the rank that computes its stage") {
  CHECK(toldOf("0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n") ==
        "1:5: 1SEND_F0 is on rank 0, but rank 1 computes stage 1\n");
}

TEST_CASE("actions: cells that are no operation say what is meant") {
  const std::string common = " is not an operation; ";
  const std::string messages =
      "messages are SEND_F and RECV_F (activations), SEND_B and RECV_B "
      "(gradients, also of a split backward), with a microbatch: 0SEND_F3\n";
  for (const char *cell : {"0SEND_X0", "0SEND_I0", "0RECV_W3", "0SEND_G"})
    CHECK(toldOf("0F0," + std::string(cell) + "\n") ==
          "1:5: '" + std::string(cell) + "'" + common + messages);
  CHECK(toldOf("0f0,0F0\n") ==
        "1:1: '0f0'" + common + "letters are capital, as in 0F0\n");
  CHECK(toldOf("F0,0F0\n") ==
        "1:1: 'F0'" + common +
            "its stage is missing, which stands first, as in 0F0\n");
  for (const char *gap : {";", " "})
    CHECK(toldOf("0F0" + std::string(gap) + "0F1\n") ==
          "1:1: '0F0" + std::string(gap) + "0F1'" + common +
              "cells are parted by commas, members of a group by "
              "semicolons\n");
}

TEST_CASE("actions: groups that are not closed, or cut by a comma") {
  CHECK(toldOf("0F0,(0SEND_F0,0RECV_B0)BATCH_P2P,0B0\n") ==
        "1:5: the group that '(0SEND_F0' opens is cut by a comma: its members "
        "are parted by semicolons, as in (0SEND_F3;0RECV_B1)BATCH_P2P\n");
  CHECK(toldOf("0F0,(0SEND_F0;0RECV_B0),0B0\n") ==
        "1:5: '(0SEND_F0;0RECV_B0)' is not an operation; behind a group stands "
        "what it is: (0SEND_F0;0RECV_B0)BATCH_P2P of messages, "
        "(0F3;7B1)OVERLAP_F_B of a forward and a backward that run together\n");
  CHECK(toldOf("0F0,(0SEND_F0,0B0\n") ==
        "1:5: '(0SEND_F0' is not an operation; a pair is written "
        "(0F3;7B1)OVERLAP_F_B, a batch (0SEND_F3;0RECV_B1)BATCH_P2P\n");
}

TEST_CASE("actions: a header or a comment is one fault") {
  const std::string prose =
      "this row names no operation: every row is a rank, and there is neither "
      "a header nor a comment\n";
  CHECK(toldOf("rank,ops\n0F0\n") == "1:1: " + prose);
  CHECK(toldOf("0F0\n  # of two, ranks\n") == "2:3: " + prose);
  CHECK(toldOf("0F0\n,,\n") == "");
}
