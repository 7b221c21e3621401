"""The arena that a plan fixes: hardly more than what is in use at once."""

import json

import sluice
from sluice import EXAMPLES, ToolTest

LARGE = ("--set=pipeline.layout=auto", "--set=cluster.device.memory=800GiB")


class Arena(ToolTest):
    def reports(self, *arguments):
        """What `report` says of each rank; live bytes are at most the arena's."""
        ranks = json.loads(self.ok("report", *arguments, "--json"))["per_rank"]
        for rank in ranks:
            self.assertEqual(rank["arena_bytes"], rank["live_bytes"] + rank["fragmentation_bytes"])
            self.assertGreaterEqual(rank["live_bytes"], rank["peak_bytes"])
        return ranks

    def within(self, percent, *arguments):
        for rank in self.reports(*arguments):
            self.assertLessEqual(100 * rank["fragmentation_bytes"], percent * rank["live_bytes"], arguments)

    def test_examples(self):
        paths = sorted(EXAMPLES.glob("*.yaml"))
        self.assertGreater(len(paths), 5)
        for path in paths:
            self.within(1, path)

    # The gradients that the two copies of a stage, or the two ends of a tied table, send each other at the end of the
    # step are as large as parameters: they fall into bytes that activations have left.
    def test_exchanged_gradients(self):
        spec = EXAMPLES / "llama-3-8b.yaml"
        for schedule in ("dualpipe", "chimera"):
            self.within(1, spec, *LARGE, f"--set=pipeline.schedule={schedule}")
        for schedule in ("1f1b", "zb-h1", "gpipe"):
            self.within(1, spec, *LARGE, "--set=model.transformer.tied_embeddings=true",
                        f"--set=pipeline.schedule={schedule}")


sluice.main()
