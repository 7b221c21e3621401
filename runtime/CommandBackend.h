//===- runtime/CommandBackend.h - What is enqueued, as commands -----------===//
#ifndef SLUICE_RUNTIME_COMMANDBACKEND_H
#define SLUICE_RUNTIME_COMMANDBACKEND_H

#include "runtime/Backend.h"

namespace sluice::runtime {

/// Turns each call that enqueues something into a command of its stream.
class CommandBackend : public Backend {
public:
  /// What to say where two ranks of a collective have different sizes.
  static std::string sizesDiffer(Pattern pattern, Id one, Bytes ofOne, Id other,
                                 Bytes ofOther);

  void wait(uint8_t stream, uint32_t event) override;
  void record(uint8_t stream, uint32_t event) override;
  void launch(uint8_t stream, uint32_t op) override;
  void send(uint8_t stream, uint32_t op, Id channel, void *data,
            Bytes bytes) override;
  void receive(uint8_t stream, uint32_t op, Id channel, void *data,
               Bytes bytes) override;
  void collective(uint8_t stream, uint32_t op, Id path, Pattern pattern,
                  Element element, void *data, Bytes bytes,
                  void *part) override;
  void copy(uint8_t stream, uint32_t op,
            std::span<const CopyPiece> pieces) override;

protected:
  enum class Kind : uint8_t {
    Wait,
    Record,
    Launch,
    Send,
    Receive,
    Collective,
    Copy,
    Group
  };
  enum class State : uint8_t { Queued, Posted, Ended };
  struct Command {
    void *data = nullptr;
    void *part = nullptr; ///< of a collective, where its own part goes
    const CopyPiece *pieces = nullptr; ///< of a copy, `number` of them
    Bytes bytes = 0;
    uint32_t op = kNone;
    uint32_t flight = kNone; ///< in the flight recorder, once it has started
    uint32_t number = 0;     ///< event, path, or members of the group
    Pattern pattern = Pattern::None; ///< of a collective
    Element element = Element::None;
    Kind kind = Kind::Wait;
    State state = State::Queued;
  };
  enum class Advance : uint8_t { Blocked, Moved, Failed };

  virtual void push(uint8_t stream, const Command &command) = 0;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_COMMANDBACKEND_H
