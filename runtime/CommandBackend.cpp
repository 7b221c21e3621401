#include "runtime/CommandBackend.h"

namespace sluice::runtime {

void CommandBackend::wait(uint8_t stream, uint32_t event) {
  push(stream, {.number = event, .kind = Kind::Wait});
}

void CommandBackend::record(uint8_t stream, uint32_t event) {
  push(stream, {.number = event, .kind = Kind::Record});
}

void CommandBackend::launch(uint8_t stream, uint32_t op) {
  push(stream, {.op = op, .kind = Kind::Launch});
}

void CommandBackend::send(uint8_t stream, uint32_t op, Id channel, void *data,
                          Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = channel,
                .kind = Kind::Send});
}

void CommandBackend::receive(uint8_t stream, uint32_t op, Id channel,
                             void *data, Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = channel,
                .kind = Kind::Receive});
}

void CommandBackend::collective(uint8_t stream, uint32_t op, Id path,
                                Pattern pattern, Element element, void *data,
                                Bytes bytes, void *part) {
  push(stream, {.data = data,
                .part = part,
                .bytes = bytes,
                .op = op,
                .number = path,
                .pattern = pattern,
                .element = element,
                .kind = Kind::Collective});
}

std::string CommandBackend::sizesDiffer(Pattern pattern, Id one, Bytes ofOne,
                                        Id other, Bytes ofOther) {
  return "rank " + std::to_string(one) +
         (pattern == Pattern::AllGather ? " gathers " : " sums ") +
         std::to_string(ofOne) + " bytes, rank " + std::to_string(other) + " " +
         std::to_string(ofOther);
}

void CommandBackend::copy(uint8_t stream, uint32_t op,
                          std::span<const CopyPiece> pieces) {
  push(stream, {.pieces = pieces.data(),
                .op = op,
                .number = static_cast<uint32_t>(pieces.size()),
                .kind = Kind::Copy});
}

} // namespace sluice::runtime
