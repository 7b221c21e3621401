//===- ir/Status.h - Failure that is not a fault of one source line ------===//
#ifndef SLUICE_IR_STATUS_H
#define SLUICE_IR_STATUS_H

#include <string>
#include <utility>

namespace sluice {

/// Whose fault a failure is; the values are the exit codes of the tool.
enum class Fault : int { None = 0, Input = 1, Usage = 2, Environment = 3 };

/// Success, or a fault and a lower-case sentence that tells it.
class [[nodiscard]] Status {
public:
  Status() = default;
  static Status input(std::string message) {
    return Status(Fault::Input, std::move(message));
  }
  static Status usage(std::string message) {
    return Status(Fault::Usage, std::move(message));
  }
  static Status environment(std::string message) {
    return Status(Fault::Environment, std::move(message));
  }

  bool ok() const { return kind == Fault::None; }
  Fault fault() const { return kind; }
  const std::string &message() const { return text; }

private:
  Status(Fault fault, std::string message)
      : kind(fault), text(std::move(message)) {}
  Fault kind = Fault::None;
  std::string text;
};

} // namespace sluice

#endif // SLUICE_IR_STATUS_H
