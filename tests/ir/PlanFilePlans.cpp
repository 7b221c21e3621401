#include "tests/ir/PlanFilePlans.h"
#include "ir/text/Text.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <unistd.h>

namespace sluice::testing {

static void add(RankPlan &rank, Op op, Id stage, Id microbatch,
                std::vector<Operand> operands, std::vector<uint32_t> waits = {},
                uint8_t stream = 0, Id channel = kNone, Id group = kNone) {
  rank.ops.push_back({stage, microbatch, channel, group,
                      static_cast<uint32_t>(rank.waits.size()),
                      static_cast<uint32_t>(rank.operands.size()), op, stream});
  rank.waits.insert(rank.waits.end(), waits.begin(), waits.end());
  rank.operands.insert(rank.operands.end(), operands.begin(), operands.end());
}

static Stage firstStage() {
  Stage stage;
  stage.firstLayer = 0;
  stage.layers = 5;
  stage.forward = 1'500'000'000;
  stage.backwardInput = 2'500'000'001;
  stage.backwardWeight = 3'000'000'000;
  stage.recompute = 4'000'000'000;
  stage.parameterCount = 11;
  stage.activeParameterCount = 10;
  stage.bytes = {22, 44, 132, 1000, 300, 70, 24, 0, 90};
  stage.recomputePolicy = RecomputePolicy::Full;
  stage.offload = true;
  stage.optimizerParts = 2;
  stage.location = {0, 12, 7};
  stage.description = "kind=block\nwidth=\"8\"\n";
  return stage;
}

static Stage secondStage() {
  Stage stage;
  stage.firstLayer = 5;
  stage.layers = 4;
  stage.backward = false;
  stage.forward = 9'000'000'000;
  stage.location = {1, 13, 8};
  return stage;
}

/// One of each kind.
static std::vector<Buffer> firstBuffers() {
  return {{0, 22, 0, BufferKind::Parameters},
          {256, 44, 0, BufferKind::Gradients},
          {512, 132, 0, BufferKind::Optimizer},
          {768, 70, kNone, BufferKind::Workspace},
          {1024, 1000, 0, BufferKind::Saved},
          {2048, 300, 0, BufferKind::Kept},
          {2560, 600, 0, BufferKind::Activation},
          {3328, 700, 0, BufferKind::Gradient},
          {2560, 44, 0, BufferKind::CopyGradients},
          {3328, 44, 0, BufferKind::TiedGradients},
          {2048, 90, 0, BufferKind::Checkpoint},
          {3840, 24, kNone, BufferKind::Norms},
          {256, 400, 0, BufferKind::Offloaded},
          {1024, 44, 0, BufferKind::WholeGradients}};
}

Plan smallPlan() {
  Plan plan;
  plan.model = "small model";
  plan.schedule = "1f1b";
  plan.source = "spec.yaml";
  plan.timeUnit = TimeUnit::Seconds;
  plan.microbatches = 3;
  plan.replicas = 2;
  plan.stages = {firstStage(), secondStage()};
  plan.edges = {{0, 1, 2048}};
  plan.channels = {{1, 0, 1, 5'000'000, 50'000'000'000}, {0, 1, 0, 0, 0}};
  plan.collectives = {{2, {0, 1}, 3'000'000, 40'000'000'000},
                      {3, {1}, 0, 0, true}};
  plan.warmup = {1, 0};
  plan.run = {{"data", "a text.txt"}, {"steps", "50"}};
  plan.memoryLimit = 80'000;
  plan.memoryAllowance = 500;
  plan.hostLink = {2'000'000, 25'000'000'000};
  plan.ranks.resize(2);

  RankPlan &a = plan.ranks[0];
  a.streams = {"compute", "to 1", "from-1"};
  a.arenaBytes = 4096;
  a.hostArenaBytes = 768;
  a.buffers = firstBuffers();
  const Access read = Access::Read, write = Access::Write,
               update = Access::Update;
  add(a, Op::Forward, 0, 2,
      {operand(0, read), operand(3, update), operand(4, write),
       operand(6, write)});
  add(a, Op::SendForward, 0, 2, {operand(6, read)}, {0}, 1, 0, 5);
  add(a, Op::RecvBackward, 0, 2, {operand(7, write)}, {}, 2, 1, 5);
  add(a, Op::Recompute, 0, 1, {operand(10, read), operand(4, write)}, {1});
  add(a, Op::BackwardInput, 0, 2, {operand(4, read), operand(5, write)},
      {0, 2});
  add(a, Op::BackwardWeight, 0, 2, {operand(1, update), operand(5, read)});
  add(a, Op::OptimizerStep, 0, kNone,
      {operand(0, update), operand(1, read), operand(2, update)});
  add(a, Op::SendGradients, 0, kNone, {operand(1, read)}, {}, 1, 0);
  add(a, Op::RecvGradients, 0, kNone, {operand(8, write)}, {}, 2, 1);
  add(a, Op::AddGradients, 0, kNone, {operand(1, update), operand(8, read)},
      {8});
  add(a, Op::SendTied, 0, kNone, {operand(1, read)}, {9}, 1, 0);
  add(a, Op::RecvTied, 0, kNone, {operand(9, write)}, {}, 2, 1);
  add(a, Op::AllReduceGradients, 0, kNone, {operand(1, update)}, {9}, 2, 0, 7);
  add(a, Op::NormGradients, 0, kNone, {operand(1, read), operand(11, update)});
  add(a, Op::AllReduceNorms, 0, kNone, {operand(11, update)}, {13}, 2, 0);
  add(a, Op::Offload, 0, 1, {operand(10, read), operand(12, write)}, {0}, 1);
  add(a, Op::Reload, 0, 1, {operand(12, read), operand(10, write)}, {15}, 2);
  add(a, Op::ReduceScatterGradients, 0, kNone, {operand(1, update)}, {9}, 2, 0);
  add(a, Op::AllGatherParameters, 0, kNone, {operand(0, update)}, {6}, 2, 0);
  add(a, Op::ReduceScatterMicrobatch, 0, 1,
      {operand(1, update), operand(13, update)}, {7}, 2, 0);

  RankPlan &b = plan.ranks[1];
  b.streams = {"compute", "up", "down"};
  b.arenaBytes = 1536;
  b.buffers = {{0, 600, 1, BufferKind::Activation},
               {768, 700, 1, BufferKind::Gradient}};
  add(b, Op::RecvForward, 1, 2, {operand(0, write)}, {}, 1, 0);
  add(b, Op::Backward, 1, 2, {operand(0, read), operand(1, write)}, {0});
  add(b, Op::SendBackward, 1, 2, {operand(1, read)}, {1}, 2, 1);
  return plan;
}

//===----------------------------------------------------------------------===//
// Random plans
//===----------------------------------------------------------------------===//

namespace {
class Generator {
public:
  explicit Generator(std::mt19937_64 &source) : random(source) {}
  Plan plan();

private:
  uint64_t below(uint64_t end) { return end == 0 ? 0 : random() % end; }
  std::string name();
  Stage stage();
  void addChannels(Plan &plan);
  void addCollectives(Plan &plan);
  RankPlan rank(const Plan &plan, Id self);
  void addOp(const Plan &plan, Id self, RankPlan &rank, Id &group);
  Id pathFor(const Plan &plan, Id self, Op op);

  std::mt19937_64 &random;
};
} // namespace

std::string Generator::name() {
  static constexpr char kBytes[] = "aZ09_.-> \"\\\n\t#{}\x01\xc3\xa9\xff";
  std::string result;
  for (uint64_t i = below(8); i > 0; --i)
    result += kBytes[below(sizeof kBytes)]; // the final zero too
  return result;
}

Stage Generator::stage() {
  Stage stage;
  stage.firstLayer = static_cast<uint32_t>(below(3));
  stage.layers = static_cast<uint32_t>(below(0x80000000));
  stage.backward = below(2) != 0;
  stage.forward = static_cast<Ticks>(below(2) * below(kMaxTicks));
  stage.backwardInput = static_cast<Ticks>(below(10'000'000));
  stage.backwardWeight = static_cast<Ticks>(below(2) * 1'000'000);
  stage.recompute = static_cast<Ticks>(below(2) * kMaxTicks);
  stage.parameterCount = random();
  stage.activeParameterCount = below(3);
  stage.bytes = {below(3), below(1u << 30),          below(3),  below(3),
                 below(3), below(uint64_t(1) << 61), below(40), 0,
                 below(3)};
  if (stage.backward)
    stage.recomputePolicy = static_cast<RecomputePolicy>(below(3));
  stage.offload = stage.backward && below(2) != 0;
  if (stage.backward && below(3) == 0) {
    stage.optimizerParts = static_cast<uint32_t>(2 + below(3));
    stage.bytes.parameters -= stage.bytes.parameters % stage.optimizerParts;
    stage.bytes.gradients -= stage.bytes.gradients % (4 * stage.optimizerParts);
    stage.gradientParts = stage.bytes.norms == 0 ? stage.optimizerParts : 1;
  }
  stage.location = {static_cast<uint32_t>(below(2)),
                    static_cast<uint32_t>(below(2)), ~0u};
  stage.description = name();
  return stage;
}

void Generator::addChannels(Plan &plan) {
  for (Id from = 0; from < plan.ranks.size(); ++from)
    for (Id to = 0; to < plan.ranks.size(); ++to)
      if (from != to && below(3) != 0)
        plan.channels.push_back({static_cast<Id>(plan.channels.size()), from,
                                 to, static_cast<Ticks>(below(kMaxTicks)),
                                 below(2) * random()});
}

void Generator::addCollectives(Plan &plan) {
  for (uint64_t i = below(3); i > 0; --i) {
    Collective of;
    of.communicator =
        static_cast<Id>(plan.channels.size() + plan.collectives.size());
    for (Id rank = 0; rank < plan.ranks.size(); ++rank)
      if (below(3) != 0)
        of.ranks.push_back(rank);
    if (of.ranks.empty())
      of.ranks.push_back(0);
    of.latency = static_cast<Ticks>(below(2) * below(kMaxTicks));
    of.bandwidth = below(2) * random();
    of.overReplicas = plan.replicas > 1 && below(2) != 0;
    plan.collectives.push_back(of);
  }
}

/// A channel or collective for `op`; kNone if there is none.
Id Generator::pathFor(const Plan &plan, Id self, Op op) {
  std::vector<Id> fitting;
  if (isCollective(op)) {
    for (Id i = 0; i < plan.collectives.size(); ++i) {
      const std::vector<Id> &ranks = plan.collectives[i].ranks;
      if (std::find(ranks.begin(), ranks.end(), self) != ranks.end())
        fitting.push_back(i);
    }
  } else {
    for (Id i = 0; i < plan.channels.size(); ++i)
      if ((isSend(op) ? plan.channels[i].source
                      : plan.channels[i].destination) == self)
        fitting.push_back(i);
  }
  return fitting.empty() ? kNone : fitting[below(fitting.size())];
}

void Generator::addOp(const Plan &plan, Id self, RankPlan &rank, Id &group) {
  PlanOp op = {static_cast<Id>(below(plan.stages.size())),
               kNone,
               kNone,
               kNone,
               static_cast<uint32_t>(rank.waits.size()),
               static_cast<uint32_t>(rank.operands.size()),
               static_cast<Op>(below(kOpCount)),
               0};
  if (info(op.op).perMicrobatch)
    op.microbatch = static_cast<Id>(below(plan.microbatches));
  size_t operands = below(5);
  group += !isCommunication(op.op); // ends what was open
  Access access = Access::Read;
  auto first = static_cast<Id>(below(rank.buffers.size()));
  if (isCommunication(op.op)) {
    op.channel = pathFor(plan, self, op.op);
    if (op.channel == kNone || rank.streams.size() < 2 || rank.buffers.empty())
      return;
    if (rank.buffers[first].bytes % bytesOf(info(op.op).element) != 0)
      return;
    op.stream = static_cast<uint8_t>(1 + below(rank.streams.size() - 1));
    group += static_cast<Id>(below(2));
    op.group = below(2) != 0 ? group : kNone;
    group += op.group == kNone;
    operands = op.op == Op::ReduceScatterMicrobatch ? 2 : 1;
    access = isSend(op.op)      ? Access::Read
             : isReceive(op.op) ? Access::Write
                                : Access::Update;
  }
  if (isCopy(op.op)) {
    if (rank.streams.size() < 2)
      return;
    op.stream = static_cast<uint8_t>(1 + below(rank.streams.size() - 1));
  }
  for (uint64_t i = rank.ops.empty() ? 0 : below(3); i > 0; --i)
    rank.waits.push_back(static_cast<uint32_t>(below(rank.ops.size())));
  for (size_t i = 0; i < operands && !rank.buffers.empty(); ++i)
    rank.operands.push_back(
        isCommunication(op.op)
            ? operand(first, access)
            : operand(static_cast<Id>(below(rank.buffers.size())),
                      static_cast<Access>(below(3))));
  rank.ops.push_back(op);
}

RankPlan Generator::rank(const Plan &plan, Id self) {
  RankPlan rank;
  rank.streams.resize(1 + below(4));
  for (std::string &stream : rank.streams)
    stream = name();
  rank.arenaBytes = below(1u << 20) * kBufferAlignment;
  rank.hostArenaBytes = below(2) * below(1u << 20) * kBufferAlignment;
  for (uint64_t i = below(6); i > 0; --i) {
    auto kind = static_cast<BufferKind>(below(kBufferKindCount));
    Bytes arena = isOnHost(kind) ? rank.hostArenaBytes : rank.arenaBytes;
    Bytes offset = below(arena / kBufferAlignment + 1) * 256;
    bool shared = kind == BufferKind::Norms ||
                  (kind == BufferKind::Workspace && below(2) != 0);
    Id stage = shared ? kNone : static_cast<Id>(below(plan.stages.size()));
    rank.buffers.push_back({offset, below(arena - offset + 1), stage, kind});
  }
  Id group = 0;
  for (uint64_t i = below(20); i > 0; --i)
    addOp(plan, self, rank, group);
  return rank;
}

Plan Generator::plan() {
  Plan plan;
  plan.model = name();
  plan.schedule = name();
  plan.source = name();
  plan.timeUnit = static_cast<TimeUnit>(below(2));
  plan.microbatches = static_cast<uint32_t>(1 + below(10));
  plan.replicas = static_cast<uint32_t>(below(3) + 1);
  plan.stages.resize(1 + below(5));
  for (Stage &it : plan.stages)
    it = stage();
  Stage &first = plan.stages.front(), &last = plan.stages.back();
  if (plan.stages.size() > 1 && first.backward && last.backward) {
    first.tiedTo = static_cast<Id>(plan.stages.size() - 1);
    last.tiedTo = 0;
    first.gradientParts = last.gradientParts = 1;
    first.bytes.tied = last.bytes.tied =
        below(std::min(first.bytes.gradients, last.bytes.gradients) + 1);
  }
  for (Id to = 1; to < plan.stages.size(); ++to)
    if (below(4) != 0)
      plan.edges.push_back({to - 1, to, below(1000)});
  plan.ranks.resize(1 + below(4));
  addChannels(plan);
  addCollectives(plan);
  if (below(2) != 0)
    plan.warmup.assign(plan.ranks.size(), static_cast<uint32_t>(below(9)));
  if (below(2) != 0)
    plan.run = {{name(), name()}};
  plan.memoryLimit = below(2) * random();
  plan.memoryAllowance = below(3);
  plan.hostLink = {static_cast<Ticks>(below(2) * below(kMaxTicks)),
                   below(2) * random()};
  for (Id self = 0; self < plan.ranks.size(); ++self)
    plan.ranks[self] = rank(plan, self);
  return plan;
}

Plan randomPlan(std::mt19937_64 &random) { return Generator(random).plan(); }

//===----------------------------------------------------------------------===//
// Text and files
//===----------------------------------------------------------------------===//

std::string textOf(const Plan &plan) {
  std::string text;
  llvm::raw_string_ostream out(text);
  IrText ir;
  ir.plan = plan;
  printIr(ir, out);
  return text;
}

std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

static void putHash(std::string &file, size_t at, const char *data,
                    size_t size) {
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits(data, size));
  std::memcpy(file.data() + at, hash.digest, sizeof hash.digest);
}

void repairHashes(std::string &file) {
  uint32_t count = 0;
  if (file.size() < 16)
    return;
  std::memcpy(&count, file.data() + 12, sizeof count);
  size_t table = 16 + size_t(count) * 32;
  if (table + 16 > file.size())
    return;
  for (size_t entry = 16; entry < table; entry += 32) {
    uint64_t place[2]; // offset, size
    std::memcpy(place, file.data() + entry, sizeof place);
    if (place[0] <= file.size() && place[1] <= file.size() - place[0])
      putHash(file, entry + 16, file.data() + place[0], place[1]);
  }
  putHash(file, table, file.data(), table);
}

TemporaryFolder::TemporaryFolder() {
  // Files are synced, which takes its time on a disk.
  std::filesystem::path base = "/dev/shm";
  if (::access(base.c_str(), W_OK) != 0)
    base = std::filesystem::temp_directory_path();
  std::string pattern = (base / "sluice-test-XXXXXX").string();
  if (const char *made = ::mkdtemp(pattern.data()))
    path = made;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string TemporaryFolder::contents() const {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string &name : names)
    all += (all.empty() ? "" : " ") + name;
  return all;
}

} // namespace sluice::testing
