//===- tests/ir/ExplorerModel.h - What the operations of a plan mean ------===//
//
// The units of a plan, what each waits for and meets, and what every buffer
// that it uses should hold before and after it. Written from the model of the
// design, with no thought of how ir/verify proves the same.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_EXPLORERMODEL_H
#define SLUICE_TESTS_IR_EXPLORERMODEL_H

#include "tests/ir/ExplorerOperands.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace sluice::testing {

/// How communications of a rank queue beside their streams.
enum class Queue { Rank, Pair, Edge, None };

class ExplorerModel : protected ExplorerOperands {
public:
  explicit ExplorerModel(const Plan &of) : ExplorerOperands(of) {
    number();
    match();
    cut();
    for (size_t u = 0; u < units.size(); ++u)
      for (uint32_t at : units[u].members) {
        addTouches(units[u], {units[u].rank, at});
        lacksOperand |= !hasOperands({units[u].rank, at});
      }
  }

  /// Some message or collective has no counterpart, or one of another size or
  /// payload.
  bool mismatched = false;
  /// Some buffer is smaller than what it should hold.
  bool tooSmall = false;
  /// Some operation names state or a workspace, or a buffer twice, that is not
  /// what a runtime finds by its kind and stage.
  bool misbound = false;
  /// Some operation does not name all that it works on, or more than that.
  bool lacksOperand = false;

protected:
  /// One use of a buffer: the cells it covers, and what they should hold
  /// before and after it, as numbers of tags.
  struct Touch {
    size_t begin, end;
    Access access;
    int before; ///< kAny: any value, but one
    int after;  ///< kSame or kOneMore: as it was, or one addition more
    int marker; ///< of an operation that writes, less than -1
    Id stage;
  };
  /// What starts and ends as one.
  struct Unit {
    Id rank;
    std::vector<uint32_t> members;
    std::vector<Touch> touches;
    size_t counterparts = 0; ///< that its members should have
  };
  /// A send and its receive: their units, and their place on the channel.
  struct Pair {
    size_t send, receive;
    Id channel;
    size_t nth;
  };
  /// The units of the n-th operations of the ranks of a collective.
  using Meeting = std::vector<size_t>;
  static constexpr int kWriter = 100'000;
  static constexpr int kAny = -1, kSame = -1, kOneMore = 0, kRubbish = -3;
  using Tag = std::tuple<int, Id, Id, int>; ///< kind, what, microbatch, version

  int tag(BufferKind kind, Id what, Id microbatch, int version = 0) {
    Tag wanted{static_cast<int>(kind), what, microbatch, version};
    return tags.try_emplace(wanted, static_cast<int>(tags.size()) + 1)
        .first->second;
  }
  void number() {
    int marker = -2;
    for (Id r = 0; r < plan.ranks.size(); ++r) {
      const RankPlan &rank = plan.ranks[r];
      firstMarker.push_back(marker);
      marker -= static_cast<int>(rank.ops.size());
      unitOf.emplace_back();
      for (uint32_t at = 0; at < rank.ops.size(); ++at) {
        bool joins = at > 0 && rank.ops[at].group != kNone &&
                     rank.ops[at].group == rank.ops[at - 1].group;
        if (!joins)
          units.push_back({r, {}, {}});
        units.back().members.push_back(at);
        units.back().counterparts += counterpartsOf(rank.ops[at]);
        unitOf[r].push_back(units.size() - 1);
      }
    }
    noneAdded = gradientTags();
  }

  size_t counterpartsOf(const PlanOp &each) const {
    return isCollective(each.op)
               ? plan.collectives[each.channel].ranks.size() - 1
               : isMessage(each.op);
  }

  /// Numbers the sums of gradients of each stage in a row: of n additions
  /// noneAdded[stage] + n, up to mostAdded() of them.
  std::vector<int> gradientTags() {
    std::vector<int> first;
    for (Id s = 0; s < plan.stages.size(); ++s) {
      first.push_back(tag(BufferKind::Gradients, s, kNone, 0));
      for (int n = 1; n <= mostAdded(); ++n)
        tag(BufferKind::Gradients, s, kNone, n);
    }
    return first;
  }
  int mostAdded() const { return static_cast<int>(4 * plan.microbatches + 4); }

  /// Units that end before a unit starts.
  std::vector<std::vector<size_t>> orderOf(Queue queue) const {
    std::vector<std::vector<size_t>> before(units.size());
    for (size_t u = 0; u < units.size(); ++u)
      for (uint32_t at : units[u].members) {
        Member m{units[u].rank, at};
        const PlanOp &each = op(m);
        follow(before[u], m, [&](const PlanOp &earlier) {
          return earlier.stream == each.stream;
        });
        if (isCommunication(each.op))
          follow(before[u], m, [&](const PlanOp &earlier) {
            return isCommunication(earlier.op) &&
                   sameQueue(earlier, each, queue);
          });
        for (uint32_t wait : plan.ranks[m.rank].waitsOf(at))
          before[u].push_back(unitOf[m.rank][wait]);
      }
    return before;
  }

  /// Adds the unit of the last operation before `m` that `wanted` takes.
  template <typename Wanted>
  void follow(std::vector<size_t> &before, Member m, Wanted wanted) const {
    size_t own = unitOf[m.rank][m.at];
    for (uint32_t at = m.at; at-- > 0;)
      if (unitOf[m.rank][at] != own && wanted(op({m.rank, at}))) {
        before.push_back(unitOf[m.rank][at]);
        return;
      }
  }

  bool sameQueue(const PlanOp &one, const PlanOp &other, Queue queue) const {
    auto peer = [this](const PlanOp &message) {
      const Channel &channel = plan.channels[message.channel];
      return isSend(message.op) ? channel.destination : channel.source;
    };
    if (queue != Queue::Rank &&
        (isCollective(one.op) || isCollective(other.op)))
      return queue != Queue::None && isCollective(one.op) &&
             isCollective(other.op) &&
             one.channel == other.channel; // of one communicator
    switch (queue) {
    case Queue::Rank:
      return true;
    case Queue::Pair:
      return peer(one) == peer(other);
    case Queue::Edge:
      return peer(one) == peer(other) && isSend(one.op) == isSend(other.op);
    case Queue::None:
      return false;
    }
    return false;
  }

  void match() {
    std::vector<std::vector<Member>> sends(plan.channels.size()),
        receives(plan.channels.size());
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at) {
        const PlanOp &each = plan.ranks[r].ops[at];
        if (isMessage(each.op))
          (isSend(each.op) ? sends : receives)[each.channel].push_back({r, at});
      }
    for (Id c = 0; c < plan.channels.size(); ++c) {
      mismatched |= sends[c].size() != receives[c].size();
      for (size_t n = 0; n < std::min(sends[c].size(), receives[c].size()); ++n)
        pair(sends[c][n], receives[c][n], c, n);
    }
    for (Id c = 0; c < plan.collectives.size(); ++c)
      matchCollective(c);
  }

  void matchCollective(Id c) {
    std::vector<std::vector<Member>> turns;
    for (Id r : plan.collectives[c].ranks) {
      turns.emplace_back();
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at)
        if (isCollective(op({r, at}).op) && op({r, at}).channel == c)
          turns.back().push_back({r, at});
      mismatched |= turns.back().size() != turns.front().size();
    }
    for (size_t n = 0;; ++n) {
      std::vector<Member> members;
      for (const std::vector<Member> &of : turns)
        if (n < of.size())
          members.push_back(of[n]);
      if (members.size() != turns.size() || members.empty())
        return;
      meet(members);
    }
  }

  /// How many stages of a rank have put their norms there before `m`, and what
  /// so many leave there, of a rank or summed over ranks.
  int normsBefore(Member m) const {
    int count = 0;
    for (uint32_t at = 0; at < m.at; ++at)
      count += op({m.rank, at}).op == Op::NormGradients;
    return count;
  }
  int normsTag(int count, bool isSummed) {
    return tag(BufferKind::Norms, kNone, kNone, 2 * count + isSummed);
  }
  /// What a step must find: the norms of all stages that are trained.
  int allNorms() {
    auto trained = [](const Stage &stage) { return stage.backward; };
    return normsTag(static_cast<int>(std::count_if(plan.stages.begin(),
                                                   plan.stages.end(), trained)),
                    true);
  }

  /// The sum that an all-reduce leaves is of what each member's rank added.
  void meet(const std::vector<Member> &members) {
    Meeting meeting;
    int sum = 0, norms = 0;
    for (Member m : members) {
      meeting.push_back(unitOf[m.rank][m.at]);
      const PlanOp &each = op(m), &first = op(members[0]);
      mismatched |= each.op != first.op || each.stage != first.stage ||
                    bytesOf(m) != bytesOf(members[0]);
      sum += additionsOn(m.rank, first.stage);
      norms += normsBefore({m.rank, uint32_t(plan.ranks[m.rank].ops.size())});
    }
    meetings.push_back(meeting);
    if (op(members[0]).op == Op::AllReduceNorms) {
      for (Member m : members)
        carried[{m.rank, m.at}] = normsTag(norms, true);
      return;
    }
    if (op(members[0]).op == Op::AllGatherParameters)
      return;
    for (Member m : members)
      carried[{m.rank, m.at}] =
          noneAdded[op(members[0]).stage] + std::min(sum, mostAdded());
  }

  void pair(Member send, Member receive, Id channel, size_t nth) {
    pairs.push_back({unitOf[send.rank][send.at],
                     unitOf[receive.rank][receive.at], channel, nth});
    const PlanOp &sender = op(send), &receiver = op(receive);
    mismatched |=
        bytesOf(send) != bytesOf(receive) ||
        info(sender.op).mate != receiver.op ||
        sender.microbatch != receiver.microbatch ||
        (sender.op == Op::SendGradients && sender.stage != receiver.stage) ||
        (sender.op == Op::SendTied &&
         plan.stages[sender.stage].tiedTo != receiver.stage);
    carried[{send.rank, send.at}] = carried[{receive.rank, receive.at}] =
        sender.op == Op::SendGradients ? copyTag(sender.stage, send.rank)
                                       : payloadOf(sender, receiver);
  }

  /// What arrives is what the sender names, whatever the receiver calls it.
  int payloadOf(const PlanOp &sender, const PlanOp &receiver) {
    if (sender.op == Op::SendTied)
      return tag(BufferKind::TiedGradients, plan.stages[sender.stage].tiedTo,
                 kNone);
    bool forward = sender.op == Op::SendForward;
    Id from = forward ? sender.stage : receiver.stage;
    Id to = forward ? receiver.stage : sender.stage;
    Id edge = kNone;
    for (Id e = 0; e < plan.edges.size(); ++e)
      if (plan.edges[e].from == from && plan.edges[e].to == to)
        edge = e;
    mismatched |= edge == kNone;
    return tag(forward ? BufferKind::Activation : BufferKind::Gradient, edge,
               sender.microbatch);
  }

  /// What the copy of a stage on `rank` has summed.
  int copyTag(Id stage, Id rank) {
    return tag(BufferKind::CopyGradients, stage, kNone, static_cast<int>(rank));
  }

  Bytes bytesOf(Member m) const {
    const RankPlan &rank = plan.ranks[m.rank];
    if (op(m).op == Op::SendTied)
      return plan.stages[op(m).stage].bytes.tied;
    return rank.buffers[rank.operandsOf(m.at)[0].buffer].bytes;
  }

  /// The arena of the host stands behind that of the device.
  static Bytes placeOf(const Buffer &buffer) {
    return buffer.offset +
           (buffer.kind == BufferKind::Offloaded ? 2 * kMaxBytes : 0);
  }

  /// Cuts the arenas into cells at every begin and end of a buffer.
  void cut() {
    for (const RankPlan &rank : plan.ranks) {
      std::set<Bytes> cuts;
      for (const Buffer &buffer : rank.buffers)
        cuts.insert({placeOf(buffer), placeOf(buffer) + buffer.bytes});
      std::vector<Bytes> sorted(cuts.begin(), cuts.end());
      size_t base = cells.size();
      firstCell.push_back(base);
      cells.resize(base + sorted.size(), 0);
      auto place = [&](Bytes cutAt) {
        return base + (std::lower_bound(sorted.begin(), sorted.end(), cutAt) -
                       sorted.begin());
      };
      cellsOf.emplace_back();
      for (const Buffer &buffer : rank.buffers) {
        size_t begin = place(placeOf(buffer));
        size_t end = place(placeOf(buffer) + buffer.bytes);
        cellsOf.back().emplace_back(begin, end);
        if (info(buffer.kind).persistent)
          std::fill(cells.begin() + begin, cells.begin() + end,
                    tag(buffer.kind, buffer.stage, kNone, 0));
      }
    }
    firstCell.push_back(cells.size());
  }

  void addTouches(Unit &unit, Member m) {
    const RankPlan &rank = plan.ranks[m.rank];
    std::span<const Operand> operands = rank.operandsOf(m.at);
    for (size_t nth = 0; nth < operands.size(); ++nth) {
      auto [begin, end] = cellsOf[m.rank][operands[nth].buffer];
      auto [before, after] = meaning(m, nth);
      misbound |= !isBound(op(m).stage, rank, operands, nth);
      unit.touches.push_back(
          {begin, end, static_cast<Access>(operands[nth].access), before, after,
           firstMarker[m.rank] - int(m.at), op(m).stage});
    }
  }

  /// The value that the operand should hold before and after the operation.
  std::pair<int, int> meaning(Member m, size_t nth) {
    const PlanOp &each = op(m);
    const RankPlan &rank = plan.ranks[m.rank];
    const Buffer &buffer = rank.buffers[rank.operandsOf(m.at)[nth].buffer];
    Id s = each.stage, k = each.microbatch;
    const StageBytes &bytes = plan.stages[s].bytes;
    switch (buffer.kind) {
    case BufferKind::Workspace: {
      tooSmall |= buffer.bytes < bytes.workspace;
      int scratch = tag(buffer.kind, buffer.stage, kNone, 0);
      return {scratch, scratch};
    }
    case BufferKind::Parameters:
    case BufferKind::Optimizer: {
      tooSmall |= buffer.bytes < (buffer.kind == BufferKind::Parameters
                                      ? bytes.parameters
                                      : bytes.optimizer);
      // A step comes first; then what has changed is gathered.
      int before = each.op == Op::AllGatherParameters;
      int after = each.op == Op::OptimizerStep ? 1 : 2 * before;
      return {tag(buffer.kind, s, kNone, before),
              tag(buffer.kind, s, kNone, after)};
    }
    case BufferKind::Norms: {
      tooSmall |= buffer.bytes < bytes.norms;
      int some = normsBefore(m);
      if (each.op == Op::NormGradients)
        return {normsTag(some, false), normsTag(some + 1, false)};
      if (each.op == Op::AllReduceNorms)
        return {normsTag(some, false), carriedBy(m)};
      return {allNorms(), allNorms()};
    }
    case BufferKind::Gradients:
      return gradients(m, buffer);
    case BufferKind::Checkpoint:
      tooSmall |= buffer.bytes < bytes.checkpoint;
      return {tag(buffer.kind, s, k), tag(buffer.kind, s, k)};
    case BufferKind::Saved:
      tooSmall |= storedAt(m) < bytes.activation;
      return {tag(buffer.kind, s, k), tag(buffer.kind, s, k)};
    case BufferKind::Kept:
      return kept(each, buffer);
    case BufferKind::Offloaded: {
      Bytes moved = 0;
      for (auto [kind, size] : piecesOf(m))
        moved += size;
      tooSmall |= buffer.bytes < moved;
      misbound |= each.op == Op::Reload && !isCutAsMoved(m);
      return {tag(buffer.kind, s, k), tag(buffer.kind, s, k)};
    }
    case BufferKind::Activation:
    case BufferKind::Gradient:
      return passed(m, nth, buffer);
    case BufferKind::TiedGradients: {
      tooSmall |= buffer.bytes < bytes.tied;
      int value =
          each.op == Op::RecvTied ? carriedBy(m) : tag(buffer.kind, s, kNone);
      return {value, value};
    }
    case BufferKind::WholeGradients: // of no plan here
      return {kRubbish, kRubbish};
    case BufferKind::CopyGradients: {
      tooSmall |= buffer.bytes < bytes.gradients;
      int value =
          each.op == Op::RecvGradients ? carriedBy(m) : copyAdded(m, nth);
      return {value, value};
    }
    }
    return {kAny, kSame};
  }

  std::pair<int, int> kept(const PlanOp &each, const Buffer &buffer) {
    const Stage &stage = plan.stages[each.stage];
    bool alone = each.op == Op::BackwardWeight ||
                 ((each.op == Op::Forward || isCopy(each.op)) &&
                  stage.recomputePolicy == RecomputePolicy::Selective);
    tooSmall |= alone && buffer.bytes < stage.bytes.keptForWeight;
    auto holds = [&](int step) {
      return tag(buffer.kind, each.stage, each.microbatch, step);
    };
    return {holds(each.op == Op::BackwardWeight),
            holds(each.op == Op::BackwardInput)};
  }

  /// What the operand of an ADD_G should hold: the sums of the other copies, in
  /// order of their ranks.
  int copyAdded(Member m, size_t nth) {
    const RankPlan &rank = plan.ranks[m.rank];
    std::span<const Operand> operands = rank.operandsOf(m.at);
    size_t place = 0;
    for (size_t i = 0; i < nth; ++i)
      place +=
          rank.buffers[operands[i].buffer].kind == BufferKind::CopyGradients;
    std::vector<Id> others = otherCopies(m.rank, op(m).stage);
    return place < others.size() ? copyTag(op(m).stage, others[place])
                                 : kRubbish;
  }
  int carriedBy(Member m) const {
    auto found = carried.find({m.rank, m.at});
    return found == carried.end() ? kRubbish : found->second;
  }

  /// Gradients count what was added; the step must find all microbatches, also
  /// in those of the stage that its own is tied to. A copy of a stage sends
  /// what its rank added, and adds what each other copy sent of its own.
  std::pair<int, int> gradients(Member m, const Buffer &buffer) {
    Op kind = op(m).op;
    Id tied = plan.stages[op(m).stage].tiedTo;
    bool takes = kind == Op::OptimizerStep || kind == Op::NormGradients;
    bool isOther = takes && buffer.stage == tied;
    Id s = isOther ? tied : op(m).stage;
    const StageBytes &bytes = plan.stages[s].bytes;
    tooSmall |= buffer.bytes < (isOther ? bytes.tied : bytes.gradients);
    int own = additionsOn(m.rank, s), added = own;
    std::vector<Id> others = otherCopies(m.rank, s);
    size_t copies = operandsOf(m, BufferKind::CopyGradients, true);
    for (size_t i = 0; i < std::min(copies, others.size()); ++i)
      added += additionsOn(others[i], s);
    auto sumOf = [&](int additions) {
      return noneAdded[s] + std::min(additions, mostAdded());
    };
    int some = sumOf(own), sum = sumOf(static_cast<int>(plan.microbatches));
    if (takes || kind == Op::SendTied)
      return {sum, sum};
    if (kind == Op::SendGradients)
      return {some, some};
    if (kind == Op::AddGradients)
      return {some, sumOf(added)};
    if (kind == Op::AllReduceGradients || kind == Op::ReduceScatterGradients)
      return {some, carriedBy(m)};
    return {kAny, kind == Op::BackwardInput ? kSame : kOneMore};
  }

  std::pair<int, int> passed(Member m, size_t nth, const Buffer &buffer) {
    const PlanOp &each = op(m);
    if (isMessage(each.op))
      return {carriedBy(m), carriedBy(m)};
    std::span<const Operand> operands = plan.ranks[m.rank].operandsOf(m.at);
    size_t place = 0; // among operands of the kind and access
    for (size_t i = 0; i < nth; ++i)
      place +=
          plan.ranks[m.rank].buffers[operands[i].buffer].kind == buffer.kind &&
          operands[i].access == operands[nth].access;
    bool reads = operands[nth].access == unsigned(Access::Read);
    bool into = reads == (buffer.kind == BufferKind::Activation);
    for (Id e = 0; e < plan.edges.size(); ++e) {
      const StageEdge &edge = plan.edges[e];
      bool counts =
          buffer.kind == BufferKind::Activation ||
          (plan.stages[edge.from].backward && plan.stages[edge.to].backward);
      if ((into ? edge.to : edge.from) == each.stage && counts &&
          place-- == 0) {
        tooSmall |= buffer.bytes < edge.bytes;
        int value = tag(buffer.kind, e, each.microbatch);
        return {value, value};
      }
    }
    return {kRubbish, kRubbish};
  }

  /// What happens to a cell when an operation starts; false if it then holds
  /// what it should not.
  bool startCell(int &cell, const Touch &touch) const {
    if (touch.access != Access::Write && !holds(cell, touch.before))
      return false;
    if (touch.access != Access::Read)
      cell = touch.access == Access::Update ? touch.marker * kWriter - cell
                                            : touch.marker * kWriter;
    return true;
  }
  /// The same when it ends; false too if another one wrote there meanwhile.
  bool endCell(int &cell, const Touch &touch) const {
    if (touch.access == Access::Read)
      return holds(cell, touch.before);
    if (cell / kWriter != touch.marker)
      return false;
    int old = touch.marker * kWriter - cell;
    if (touch.after > 0)
      cell = touch.after;
    else if (touch.after == kSame)
      cell = old;
    else if (touch.after == kOneMore && old >= noneAdded[touch.stage] &&
             old < noneAdded[touch.stage] + mostAdded())
      cell = old + 1;
    else
      cell = kRubbish;
    return true;
  }
  static bool holds(int cell, int wanted) {
    return cell > 0 && (wanted == kAny || cell == wanted);
  }

  std::vector<Unit> units;
  std::vector<Pair> pairs;
  std::vector<Meeting> meetings;
  std::vector<int> cells;        ///< of all arenas, as they are at first
  std::vector<size_t> firstCell; ///< per rank, and one past

private:
  std::vector<int> firstMarker;
  std::vector<int> noneAdded;
  std::vector<std::vector<size_t>> unitOf;
  std::map<std::pair<Id, uint32_t>, int> carried;
  std::vector<std::vector<std::pair<size_t, size_t>>> cellsOf;
  std::map<Tag, int> tags;
};

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_EXPLORERMODEL_H
