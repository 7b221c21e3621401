#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {
namespace {

/// The collective operations of one rank on one communicator, in order.
using Turns = std::vector<Id>;

class Meetings {
public:
  Meetings(PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to),
        turns(of.plan.collectives.size()) {
    for (Id c = 0; c < turns.size(); ++c)
      turns[c].resize(plan.collectives[c].ranks.size());
  }

  bool match() {
    index.meeting.assign(index.operations(), kNone);
    list();
    bool matched = true;
    for (Id c = 0; c < turns.size(); ++c)
      matched &= matchCollective(c);
    return matched;
  }

private:
  void list() {
    Id number = 0;
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (const PlanOp &op : plan.ranks[r].ops) {
        if (isCollective(op.op)) {
          const std::vector<Id> &ranks = plan.collectives[op.channel].ranks;
          auto at = std::lower_bound(ranks.begin(), ranks.end(), r);
          turns[op.channel][at - ranks.begin()].push_back(number);
        }
        ++number;
      }
  }

  /// One rank of a collective: its operations there.
  struct Member {
    Id rank;
    const Turns &turns;
  };
  Member member(Id c, size_t nth) const {
    return {plan.collectives[c].ranks[nth], turns[c][nth]};
  }

  const PlanOp &opOf(Id rank, Id number) const {
    return plan.ranks[rank].ops[number - index.firstOp[rank]];
  }
  Bytes bytesOf(Id rank, Id number) const {
    return messageBytes(plan, plan.ranks[rank], opOf(rank, number));
  }
  /// Whether both do the same to the same.
  bool doesSame(const Member &one, const Member &other, Id nth,
                Id nthOther) const {
    const PlanOp &a = opOf(one.rank, one.turns[nth]);
    const PlanOp &b = opOf(other.rank, other.turns[nthOther]);
    return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch;
  }

  bool matchCollective(Id c) {
    auto fewer = [](const Turns &one, const Turns &other) {
      return one.size() < other.size();
    };
    auto [least, most] =
        std::minmax_element(turns[c].begin(), turns[c].end(), fewer);
    if (least == turns[c].end())
      return true; // of no ranks
    bool even = least->size() == most->size();
    if (!even)
      tellUneven(c, member(c, most - turns[c].begin()),
                 member(c, least - turns[c].begin()));
    bool same = even;
    for (Id n = 0; n < least->size(); ++n) {
      meet(c, n);
      // What follows a difference only repeats it.
      same = same && compare(c, n);
    }
    return same;
  }

  /// Joins the n-th operations of all ranks of collective `c`.
  void meet(Id c, Id n) {
    for (const Turns &each : turns[c]) {
      index.meeting[each[n]] = index.meetings();
      index.attendants.push_back(each[n]);
    }
    index.firstOfMeeting.push_back(static_cast<Id>(index.attendants.size()));
  }

  bool compare(Id c, Id n) {
    Member first = member(c, 0);
    for (size_t i = 1; i < turns[c].size(); ++i) {
      Member other = member(c, i);
      Bytes mine = bytesOf(first.rank, first.turns[n]);
      Bytes its = bytesOf(other.rank, other.turns[n]);
      bool same = doesSame(first, other, n, n);
      if (same && mine == its)
        continue;
      std::string start = "collective operation " + std::to_string(n + 1) +
                          " on " + communicator(c) + ": " + name(first, n) +
                          " of rank " + std::to_string(first.rank) +
                          " (operation " + std::to_string(position(first, n)) +
                          ") ";
      std::string end =
          name(other, n) + " of rank " + std::to_string(other.rank);
      tell(other, n,
           same ? start + "sums " + std::to_string(mine) + " bytes, " + end +
                      " " + std::to_string(its)
                : start + "meets " + end,
           OpPlace{first.rank, position(first, n)});
      return false;
    }
    return true;
  }

  /// Tells that `longer` has more operations than `shorter`, and which one is
  /// alone, if the others meet without it.
  void tellUneven(Id c, const Member &longer, const Member &shorter) {
    auto pairs = static_cast<Id>(shorter.turns.size());
    Id lone = 0;
    while (lone < pairs && doesSame(longer, shorter, lone, lone))
      ++lone;
    Id rest = lone; // of the shorter list, what meets without the lone one
    while (rest < pairs && doesSame(longer, shorter, rest + 1, rest))
      ++rest;
    if (rest < pairs)
      lone = pairs; // no single one is to blame
    tell(longer, lone,
         "on " + communicator(c) + " rank " + std::to_string(longer.rank) +
             " has " + std::to_string(longer.turns.size()) + " collective " +
             (longer.turns.size() == 1 ? "operation" : "operations") +
             ", rank " + std::to_string(shorter.rank) + " has " +
             std::to_string(pairs) + ": " + name(longer, lone) +
             " meets none of rank " + std::to_string(shorter.rank));
  }

  std::string name(const Member &of, Id n) const {
    return nameOf(opOf(of.rank, of.turns[n]));
  }
  uint32_t position(const Member &of, Id n) const {
    return of.turns[n] - index.firstOp[of.rank];
  }
  std::string communicator(Id c) const {
    return "communicator " + std::to_string(plan.collectives[c].communicator);
  }

  void tell(const Member &of, Id n, std::string message,
            std::optional<OpPlace> meets = std::nullopt) {
    if (report.admits(FindingKind::Mismatch))
      report.error(FindingKind::Mismatch, OpPlace{of.rank, position(of, n)},
                   std::move(message), {}, meets);
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  std::vector<std::vector<Turns>> turns; ///< per collective and rank
};

} // namespace

bool matchCollectives(PlanIndex &index, Report &report) {
  return !index.hasCollectives || Meetings(index, report).match();
}

} // namespace sluice::verify
