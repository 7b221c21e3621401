//===- ir/Ops.h - The operations, from Ops.def ---------------------------===//
#ifndef SLUICE_IR_OPS_H
#define SLUICE_IR_OPS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Index of a thing in a flat array: a node, value, stage, buffer, channel.
using Id = uint32_t;
inline constexpr Id kNone = ~Id(0);

enum class OpClass : uint8_t {
  Compute,
  Send,
  Receive,
  Update,
  Collective,
  Copy
};
enum class Payload : uint8_t {
  None,
  Activation,
  Gradient,
  WeightGradients,
  TiedGradients,
  Norms,
  Parameters
};
/// What a collective adds up.
enum class Element : uint8_t { None, Float32, Float64 };
/// What a collective leaves with each of its members.
enum class Pattern : uint8_t { None, AllReduce, ReduceScatter, AllGather };
enum class Flight : uint8_t {
  Keeps,
  Opens,
  ClosesInput,
  ClosesWeight,
  ClosesBoth
};
enum class OpCost : uint8_t {
  Free,
  Forward,
  BackwardInput,
  BackwardWeight,
  BackwardBoth,
  Recompute,
  Step
};

enum class Op : uint8_t {
#define SLUICE_OP(Name, ...) Name,
#include "ir/Ops.def"
};

/// The columns of Ops.def for one operation.
struct OpInfo {
  std::string_view name;
  std::string_view text;
  OpClass opClass;
  bool perMicrobatch;
  Payload payload;
  Element element;
  Pattern pattern;
  Op mate;
  Flight flight;
  OpCost cost;
  std::string_view color;
};

inline constexpr OpInfo kOps[] = {
#define SLUICE_OP(Name, Text, Class, PerMicrobatch, PayloadKind, ElementKind,  \
                  PatternKind, Mate, FlightKind, CostKind, Color)              \
  {#Name,                                                                      \
   Text,                                                                       \
   OpClass::Class,                                                             \
   PerMicrobatch,                                                              \
   Payload::PayloadKind,                                                       \
   Element::ElementKind,                                                       \
   Pattern::PatternKind,                                                       \
   Op::Mate,                                                                   \
   Flight::FlightKind,                                                         \
   OpCost::CostKind,                                                           \
   Color},
#include "ir/Ops.def"
};

inline constexpr unsigned kOpCount = sizeof(kOps) / sizeof(kOps[0]);

constexpr const OpInfo &info(Op op) { return kOps[static_cast<unsigned>(op)]; }
constexpr bool isCompute(Op op) { return info(op).opClass == OpClass::Compute; }
constexpr bool isSend(Op op) { return info(op).opClass == OpClass::Send; }
constexpr bool isReceive(Op op) { return info(op).opClass == OpClass::Receive; }
constexpr bool isMessage(Op op) { return isSend(op) || isReceive(op); }
/// Of what a microbatch's messages carry: whether the stage at the other end
/// comes after.
constexpr bool isWithLater(Op message) {
  return message == Op::SendForward || message == Op::RecvBackward;
}
constexpr bool isCollective(Op op) {
  return info(op).opClass == OpClass::Collective;
}
/// Between a device's memory and its host's.
constexpr bool isCopy(Op op) { return info(op).opClass == OpClass::Copy; }
/// What other ranks take part in.
constexpr bool isCommunication(Op op) {
  return isMessage(op) || isCollective(op);
}

/// Bytes of one element; 1 where bytes only move.
constexpr uint64_t bytesOf(Element element) {
  switch (element) {
  case Element::None:
    return 1;
  case Element::Float32:
    return 4;
  case Element::Float64:
    return 8;
  }
  return 1;
}

/// What the operations of a stage take, in whatever measure.
template <typename T> struct OpCosts {
  T forward{}, backwardInput{}, backwardWeight{}, recompute{}, step{};
};

/// What `op` takes of these.
template <typename T> constexpr T costOf(Op op, const OpCosts<T> &costs) {
  switch (info(op).cost) {
  case OpCost::Free:
    return T();
  case OpCost::Forward:
    return costs.forward;
  case OpCost::BackwardInput:
    return costs.backwardInput;
  case OpCost::BackwardWeight:
    return costs.backwardWeight;
  case OpCost::BackwardBoth:
    return costs.backwardInput + costs.backwardWeight;
  case OpCost::Recompute:
    return costs.recompute;
  case OpCost::Step:
    return costs.step;
  }
  return T();
}

/// The operation of exactly this text ("F", "SEND_B"), if there is one.
std::optional<Op> opFromText(std::string_view text);

/// `<stage><TYPE><microbatch>`: "0F3", "1SEND_F3"; without a microbatch where
/// the operation has none: "2STEP".
std::string opName(Op op, Id stage, Id microbatch);

/// What stands behind a pair that runs together: `(0F3;7B1)OVERLAP_F_B`.
inline constexpr const char *kPairEnd = ")OVERLAP_F_B";

/// What a name names.
struct OpRef {
  Op op;
  Id stage;
  Id microbatch; ///< kNone where the operation has none
};

inline std::string nameOf(const OpRef &ref) {
  return opName(ref.op, ref.stage, ref.microbatch);
}

/// Numbers in names of operations are at most this.
inline constexpr Id kMaxNumber = 0x7fffffff;

/// Reads a name written by opName. Strict: no sign, no leading zero, no rest,
/// a microbatch exactly where the operation has one, numbers below 2^31.
std::optional<OpRef> parseOpName(std::string_view text);

} // namespace sluice

#endif // SLUICE_IR_OPS_H
