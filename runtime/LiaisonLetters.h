//===- runtime/LiaisonLetters.h - The letters of a job of processes -------===//
//
// Inner header of Liaison.cpp and its neighbours: the kinds of letters, and how
// what they hold is written.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_LIAISONLETTERS_H
#define SLUICE_RUNTIME_LIAISONLETTERS_H

#include "runtime/Letter.h"
#include "runtime/Liaison.h"

namespace sluice::runtime {

/// The first byte of every letter that is not empty.
enum class LetterKind : uint8_t {
  Standing,
  Loaded,
  StepEnded,
  Report,
  Offer,
  Fetch,
  Piece,
  Over,
  Stop,
  Ends,
  Dismissed
};

/// Nanoseconds.
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1000 * kMillisecond;

LetterWriter startLetter(LetterKind kind);

void write(LetterWriter &out, const Status &status);
Status readStatus(LetterReader &in);
void write(LetterWriter &out, const StandingRow &row);
StandingRow readRow(LetterReader &in);
void write(LetterWriter &out, const RankReport &report);
RankReport readReport(LetterReader &in);
/// The tensors that process `from` offers.
std::vector<HeldTensor> readOffer(LetterReader &in, Id from);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_LIAISONLETTERS_H
