//===- tests/ir/Explorer.h - Every interleaving of a plan -----------------===//
//
// Runs a plan in every order that its streams, queues of messages, events,
// groups and rendezvous allow, with bytes that say what they hold. An operation
// uses its buffers from its start to its end: what it reads must be right at
// both, what it writes is rubbish until its end, and if another operation wrote
// there meanwhile, the data is wrong.
//
// Doing one thing never forbids another, so "starts after", "ends after" make
// one partial order of all starts and ends, and the interleavings are its
// linear extensions. A cell of memory only feels those who touch it, and every
// order of them that the partial order allows belongs to some interleaving of
// all. So it is enough to explore every cell by itself (exploreCells), which is
// quick; explore() goes through the states of the whole plan and judges that.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_EXPLORER_H
#define SLUICE_TESTS_IR_EXPLORER_H

#include "tests/ir/ExplorerModel.h"

#include <string>
#include <unordered_set>

namespace sluice::testing {

struct Explored {
  bool hangs = false;
  bool wrongData = false;
  bool complete = true; ///< all states seen, or a fault found
  size_t states = 0;
};

class Explorer : public ExplorerModel {
public:
  explicit Explorer(const Plan &of) : ExplorerModel(of), mates(units.size()) {
    for (const Pair &pair : pairs) {
      mates[pair.send].push_back(pair.receive);
      mates[pair.receive].push_back(pair.send);
    }
    for (const Meeting &meeting : meetings)
      for (size_t one : meeting)
        for (size_t other : meeting)
          if (other != one)
            mates[one].push_back(other);
  }

  /// All states of the whole plan.
  Explored explore(Queue queue = Queue::Rank, size_t maxStates = 200'000) {
    before = orderOf(queue);
    Explored result;
    State first{std::string(units.size(), 0), cells};
    std::vector<State> open{first};
    std::unordered_set<std::string> seen{key(first)};
    while (!open.empty() && !result.wrongData && !result.hangs) {
      State state = std::move(open.back());
      open.pop_back();
      if (++result.states > maxStates) {
        result.complete = false;
        return result;
      }
      bool moved = false;
      for (size_t u = 0; u < units.size() && !result.wrongData; ++u) {
        if (!canStart(state.phase, u) && !canEnd(state.phase, u))
          continue;
        moved = true;
        State next = state;
        result.wrongData = !step(next, u);
        if (seen.insert(key(next)).second)
          open.push_back(std::move(next));
      }
      if (!moved)
        result.hangs = !isDone(state.phase);
    }
    return result;
  }

  /// The same answer by the states of each cell.
  Explored exploreCells(Queue queue = Queue::Rank) {
    before = orderOf(queue);
    Explored result;
    result.hangs = !closeOrder();
    for (Id r = 0; r < plan.ranks.size() && !result.hangs; ++r)
      exploreRank(r, result);
    return result;
  }

  /// Whether the plan hangs, whatever its data. The n-th send of a channel may
  /// end once its receive has started, or receive n - `buffered` has ended.
  bool hangs(Queue queue = Queue::Rank, size_t buffered = 0) {
    before = orderOf(queue);
    std::string phase(units.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t u = 0; u < units.size(); ++u)
        if (canStart(phase, u) || canEnd(phase, u, buffered)) {
          ++phase[u];
          moved = true;
        }
    }
    return !isDone(phase);
  }

  /// Messages on the channel that has most.
  size_t longestChannel() const {
    size_t longest = 0;
    for (const Pair &pair : pairs)
      longest = std::max(longest, pair.nth + 1);
    return longest;
  }

private:
  /// Phase of every unit (0 waits, 1 runs, 2 has ended); what every cell holds:
  /// the number of a tag, 0 for nothing, less than -kWriter while an operation
  /// writes it.
  struct State {
    std::string phase;
    std::vector<int> cells;
  };

  static std::string key(const State &state) {
    std::string text = state.phase;
    text.append(reinterpret_cast<const char *>(state.cells.data()),
                state.cells.size() * sizeof(int));
    return text;
  }
  static bool isDone(const std::string &phase) {
    return phase.find_first_not_of('\2') == std::string::npos;
  }

  bool canStart(const std::string &phase, size_t u) const {
    if (phase[u] != 0)
      return false;
    for (size_t earlier : before[u])
      if (phase[earlier] != 2)
        return false;
    return true;
  }

  bool canEnd(const std::string &phase, size_t u, size_t buffered = 0) const {
    if (phase[u] != 1 || mates[u].size() != units[u].counterparts)
      return false;
    if (buffered == 0) {
      for (size_t mate : mates[u])
        if (phase[mate] == 0)
          return false;
      return true;
    }
    for (const Pair &pair : pairs)
      if ((pair.receive == u && phase[pair.send] == 0) ||
          (pair.send == u && phase[pair.receive] == 0 &&
           !hasRoom(phase, pair, buffered)))
        return false;
    for (const Meeting &meeting : meetings)
      if (std::find(meeting.begin(), meeting.end(), u) != meeting.end())
        for (size_t other : meeting)
          if (phase[other] == 0)
            return false;
    return true;
  }

  bool hasRoom(const std::string &phase, const Pair &pair, size_t n) const {
    if (pair.nth < n)
      return true;
    for (const Pair &other : pairs)
      if (other.channel == pair.channel && other.nth == pair.nth - n)
        return phase[other.receive] == 2;
    return false;
  }

  /// Starts or ends unit `u`; false if it finds wrong data.
  bool step(State &state, size_t u) const {
    bool starts = state.phase[u]++ == 0;
    for (const Touch &touch : units[u].touches)
      for (size_t cell = touch.begin; cell < touch.end; ++cell)
        if (!(starts ? startCell(state.cells[cell], touch)
                     : endCell(state.cells[cell], touch)))
          return false;
    return true;
  }

  //===--------------------------------------------------------------------===//
  // One cell at a time
  //===--------------------------------------------------------------------===//

  /// A start of unit u is event 2 u, its end 2 u + 1.
  std::vector<std::vector<size_t>> eventOrder() const {
    std::vector<std::vector<size_t>> earlier(2 * units.size());
    for (size_t u = 0; u < units.size(); ++u) {
      earlier[2 * u + 1].push_back(2 * u);
      for (size_t other : before[u])
        earlier[2 * u].push_back(2 * other + 1);
      for (size_t mate : mates[u])
        if (mate != u)
          earlier[2 * u + 1].push_back(2 * mate);
    }
    return earlier;
  }

  /// Finds all that must come before each event; false if some never can.
  bool closeOrder() {
    for (size_t u = 0; u < units.size(); ++u)
      if (mates[u].size() != units[u].counterparts)
        return false;
    std::vector<std::vector<size_t>> earlier = eventOrder();
    size_t events = earlier.size(), words = events / 64 + 1;
    reach.assign(events, std::vector<uint64_t>(words, 0));
    std::vector<char> done(events, 0);
    size_t count = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t e = 0; e < events; ++e) {
        auto isDone = [&](size_t other) { return done[other] != 0; };
        if (done[e] ||
            !std::all_of(earlier[e].begin(), earlier[e].end(), isDone))
          continue;
        for (size_t other : earlier[e]) {
          for (size_t w = 0; w < words; ++w)
            reach[e][w] |= reach[other][w];
          reach[e][other / 64] |= uint64_t(1) << (other % 64);
        }
        done[e] = 1;
        moved = true;
        ++count;
      }
    }
    return count == events;
  }
  bool comesBefore(size_t one, size_t other) const {
    return (reach[other][one / 64] >> (one % 64) & 1) != 0;
  }

  /// A unit that touches a cell, with the touches in order.
  struct Toucher {
    size_t unit;
    std::vector<const Touch *> touches;
  };

  void exploreRank(Id r, Explored &result) const {
    std::set<std::pair<int, std::vector<const Touch *>>> known;
    for (size_t cell = firstCell[r];
         cell < firstCell[r + 1] && !result.wrongData; ++cell) {
      std::vector<Toucher> touchers;
      std::vector<const Touch *> all;
      for (size_t u = 0; u < units.size(); ++u) {
        Toucher toucher{u, {}};
        for (const Touch &touch : units[u].touches)
          if (cell >= touch.begin && cell < touch.end)
            toucher.touches.push_back(&touch);
        all.insert(all.end(), toucher.touches.begin(), toucher.touches.end());
        if (!toucher.touches.empty())
          touchers.push_back(std::move(toucher));
      }
      if (known.emplace(cells[cell], all).second)
        exploreCell(cells[cell], touchers, result);
    }
  }

  struct CellState {
    std::string phase;
    int cell;
    bool operator<(const CellState &other) const {
      return std::tie(phase, cell) < std::tie(other.phase, other.cell);
    }
  };

  void exploreCell(int cell, const std::vector<Toucher> &touchers,
                   Explored &result) const {
    CellState first{std::string(touchers.size(), 0), cell};
    std::vector<CellState> open{first};
    std::set<CellState> seen{first};
    while (!open.empty() && !result.wrongData) {
      CellState state = std::move(open.back());
      open.pop_back();
      ++result.states;
      for (size_t t = 0; t < touchers.size() && !result.wrongData; ++t) {
        if (state.phase[t] == 2 || !isNext(state, touchers, t))
          continue;
        CellState next = state;
        result.wrongData = !stepCell(next, touchers[t], t);
        if (seen.insert(next).second)
          open.push_back(std::move(next));
      }
    }
  }

  /// Whether all events of touchers that come before the next one of `t` have
  /// been.
  bool isNext(const CellState &state, const std::vector<Toucher> &touchers,
              size_t t) const {
    size_t event = 2 * touchers[t].unit + state.phase[t];
    for (size_t i = 0; i < touchers.size(); ++i) {
      size_t start = 2 * touchers[i].unit;
      if ((state.phase[i] < 1 && comesBefore(start, event)) ||
          (state.phase[i] < 2 && comesBefore(start + 1, event)))
        return false;
    }
    return true;
  }

  bool stepCell(CellState &state, const Toucher &toucher, size_t t) const {
    bool starts = state.phase[t]++ == 0;
    for (const Touch *touch : toucher.touches)
      if (!(starts ? startCell(state.cell, *touch)
                   : endCell(state.cell, *touch)))
        return false;
    return true;
  }

  std::vector<std::vector<size_t>> mates;  ///< start before a unit ends
  std::vector<std::vector<size_t>> before; ///< end before it starts
  std::vector<std::vector<uint64_t>> reach;
};

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_EXPLORER_H
