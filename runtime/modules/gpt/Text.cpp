//===- runtime/modules/gpt/Text.cpp - The text that a model is trained on -===//
#include "runtime/modules/gpt/Text.h"

#include "ir/Diagnostics.h"
#include "runtime/modules/gpt/Random.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

namespace sluice::gpt {
namespace {

/// The path comes last: it may be long, and a message is cut at its end.
Status unreadable(const std::string &why, const std::string &path) {
  return Status::input("cannot read the data file: " + why + ": " +
                       escaped(path));
}

struct CloseFile {
  void operator()(std::FILE *file) const { std::fclose(file); }
};

/// The file's first bytes, at most kTextLimit.
Status readFile(const std::string &path, std::vector<uint8_t> &bytes) {
  std::error_code code;
  auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status))
    return unreadable(std::strerror(code ? code.value() : ENOENT), path);
  if (!std::filesystem::is_regular_file(status))
    return unreadable("not a regular file", path);
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file)
    return unreadable(std::strerror(errno), path);
  uintmax_t size = std::filesystem::file_size(path, code);
  bytes.resize(code ? 0 : std::min<uintmax_t>(size, kTextLimit));
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get()))
    return unreadable(std::strerror(errno), path);
  return Status();
}

} // namespace

Status Text::read(const Config &config) {
  const std::string &path = config.data;
  if (path.empty())
    return Status::input("the run section names no data file, and this stage "
                         "reads tokens: give run.data or --data=FILE");
  if (Status status = readFile(path, bytes); !status.ok())
    return status;
  if (bytes.empty())
    return unreadable("it is empty", path);
  if (bytes.size() <= config.sequence)
    return unreadable(
        "it has " + std::to_string(bytes.size()) + " bytes, fewer than the " +
            std::to_string(uint64_t(config.sequence) + 1) + " of a sample",
        path);
  auto outside = std::ranges::find_if(
      bytes, [&config](uint8_t byte) { return byte >= config.vocab; });
  if (outside != bytes.end())
    return unreadable("its byte " + std::to_string(outside - bytes.begin()) +
                          " is " + std::to_string(*outside) +
                          ", not below the vocabulary of " +
                          std::to_string(config.vocab),
                      path);
  return Status();
}

const uint8_t *Text::sample(const Config &config, uint64_t step,
                            uint32_t microbatch, uint32_t row) const {
  uint64_t hash = startHash(Use::Samples, config.seed);
  hash = extendHash(hash, step);
  hash = extendHash(hash, microbatch);
  hash = extendHash(hash, row);
  return bytes.data() + hash % (bytes.size() - config.sequence);
}

} // namespace sluice::gpt
