#include "tools/sluice/CsvTrial.h"

#include "ir/Groups.h"

#include <algorithm>
#include <utility>

namespace sluice {

CsvTrial::CsvTrial(const Actions &of, Id row) : all(of), rank(row) {
  std::span<const Aside> asides = all.asidesOf(rank);
  uint32_t position = all.firstOfRank[rank];
  auto takeAsides = [&] {
    while (cellOfWait.size() < asides.size() &&
           asides[cellOfWait.size()].before <= position) {
      cells.emplace_back(asides[cellOfWait.size()]);
      cellOfWait.push_back(cells.size() - 1);
    }
  };
  for (const Action &action : all.rank(rank)) {
    takeAsides();
    cellOfAction.push_back(cells.size());
    cells.emplace_back(action);
    ++position;
  }
  takeAsides();
}

Id CsvTrial::groupAt(size_t position) const {
  const auto *action =
      position < cells.size() ? std::get_if<Action>(&cells[position]) : nullptr;
  return action ? action->group : kNone;
}

/// Before or behind the cell at `position` and all of its group.
size_t CsvTrial::placeAt(size_t position, bool behind) const {
  auto [first, end] = groupExtent(position, cells.size(),
                                  [this](size_t at) { return groupAt(at); });
  return behind ? end : first;
}

void CsvTrial::rotate(size_t from, size_t to) {
  auto begin = cells.begin();
  if (from < to)
    std::rotate(begin + from, begin + from + 1, begin + to);
  else
    std::rotate(begin + to, begin + from, begin + from + 1);
}

void CsvTrial::insert(size_t position, bool behind, const OpRef &message) {
  cells.insert(cells.begin() + placeAt(position, behind),
               Action{message.stage, message.microbatch, kNone, 1, message.op});
}

void CsvTrial::move(size_t from, size_t position, bool behind) {
  size_t to = placeAt(position, behind);
  if (auto *action = std::get_if<Action>(&cells[from]))
    action->group = kNone;
  rotate(from, to);
}

void CsvTrial::shift(size_t from, size_t position, bool behind) {
  rotate(from, behind ? position + 1 : position);
}

void CsvTrial::swap(size_t one, size_t other) {
  std::swap(cells[one], cells[other]);
  std::swap(std::get<Action>(cells[one]).group,
            std::get<Action>(cells[other]).group);
}

Actions CsvTrial::actions() const {
  Actions changed;
  changed.hasMessages = all.hasMessages;
  for (Id row = 0; row < all.ranks(); ++row) {
    auto first = static_cast<uint32_t>(changed.list.size());
    changed.firstOfRank.push_back(first);
    changed.firstAsideOf.push_back(
        static_cast<uint32_t>(changed.asides.size()));
    auto add = [&](const Action &action) { changed.list.push_back(action); };
    auto addAside = [&](Aside aside, uint32_t before) {
      aside.before = before;
      changed.asides.push_back(aside);
    };
    if (row != rank) {
      std::ranges::for_each(all.rank(row), add);
      for (const Aside &aside : all.asidesOf(row))
        addAside(aside, aside.before - all.firstOfRank[row] + first);
      continue;
    }
    for (const Cell &cell : cells)
      if (const auto *action = std::get_if<Action>(&cell))
        add(*action);
      else
        addAside(std::get<Aside>(cell),
                 static_cast<uint32_t>(changed.list.size()));
  }
  changed.firstOfRank.push_back(static_cast<uint32_t>(changed.list.size()));
  changed.firstAsideOf.push_back(static_cast<uint32_t>(changed.asides.size()));
  return changed;
}

std::optional<verify::Result> proveActions(const CsvSchedule &csv,
                                           const Actions &actions) {
  Diagnostics faults;
  std::optional<Plan> plan = planOfActions(actions, csv.lines, {}, faults);
  verify::Options options = csv.proved;
  options.remedies = false;
  return plan ? std::optional(verify::verifyPlan(*plan, options))
              : std::nullopt;
}

} // namespace sluice
