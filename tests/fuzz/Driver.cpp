//===- tests/fuzz/Driver.cpp - Runs a fuzzer without libFuzzer ------------===//
//
//   fuzz_NAME SECONDS FILE...
//
// Tries every seed file, then random changes to them for so many seconds (or
// those of SLUICE_FUZZ_SECONDS): bytes, and words between what parts them. The
// numbers are the same in every run. The input that ends the program stands in
// ./NAME-crash; one that takes longer than ten seconds ends it, too. Seconds
// are those of the processor, so that a run may wait for others.
//
//===----------------------------------------------------------------------===//
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

constexpr time_t kMostSecondsOfOne = 10;
std::string current, crashFile;

/// Saves the input at hand; only with what a signal handler may call.
void save(int signal) {
  int file = ::open(crashFile.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file >= 0) {
    if (::write(file, current.data(), current.size()) < 0)
      ::_exit(2);
    ::close(file);
  }
  ::_exit(128 + signal);
}

std::string fileText(const char *path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Ends the program after so many seconds of the processor; 0: not any more.
void limit(time_t seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

double processorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void tryInput(std::string input) {
  current = std::move(input);
  limit(kMostSecondsOfOne);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(current.data()),
                         current.size());
  limit(0);
}

class Changes {
public:
  explicit Changes(const std::vector<std::string> &of) : seeds(of) {}

  std::string next() {
    std::string text = pick(seeds);
    for (size_t edits = 1 + below(below(4) == 0 ? 12 : 3); edits > 0; --edits)
      below(3) == 0 ? changeBytes(text) : changeWords(text);
    return text;
  }

private:
  using Range = std::pair<size_t, size_t>; ///< begin and length

  size_t below(size_t bound) { return bound == 0 ? 0 : random() % bound; }
  const std::string &pick(const std::vector<std::string> &from) {
    return from[below(from.size())];
  }

  void changeBytes(std::string &text) {
    size_t at = below(text.size() + 1);
    switch (below(5)) {
    case 0:
      text.erase(at, 1 + below(8));
      return;
    case 1:
      text.insert(at, 1, static_cast<char>(random()));
      return;
    case 2:
      if (at < text.size())
        text[at] ^= static_cast<char>(1 << below(8));
      return;
    case 3:
      text.insert(at, part(pick(seeds)));
      return;
    case 4:
      if (below(4) == 0)
        text.resize(at);
      return;
    }
  }

  std::string part(const std::string &of) {
    return of.substr(below(of.size()), below(60));
  }

  /// A word of `text`, which ends at a blank, a line's end or a bracket.
  Range word(const std::string &text) {
    constexpr const char *kParts = " ,;:\n()[]{}";
    size_t at = below(text.size());
    size_t begin = text.find_first_not_of(kParts, at);
    if (begin == std::string::npos)
      return {text.size(), 0};
    if (begin == at) {
      size_t before = text.find_last_of(kParts, at);
      begin = before == std::string::npos ? 0 : before + 1;
    }
    return {begin, text.find_first_of(kParts, begin) - begin};
  }

  void changeWords(std::string &text) {
    auto [begin, length] = word(text);
    std::string old = text.substr(begin, length);
    switch (below(6)) {
    case 0: { // another word of the text takes its place, and it that one's
      Range other = word(text);
      std::string swapped = text.substr(other.first, other.second);
      text.replace(begin, length, swapped);
      if (other.first > begin && other.first + swapped.size() <= text.size() &&
          swapped.size() == old.size())
        text.replace(other.first, old.size(), old);
      return;
    }
    case 1: {
      const std::string &seed = pick(seeds);
      Range other = word(seed);
      text.replace(begin, length, seed, other.first, other.second);
      return;
    }
    case 2: // without what parts it from the next
      text.erase(begin, length == std::string::npos ? length : length + 1);
      return;
    case 3:
      text.insert(word(text).first, old + ",");
      return;
    case 4:
      return changeNumber(text, begin);
    case 5:
      text.insert(begin, below(2) ? "(" : "\n");
      return;
    }
  }

  void changeNumber(std::string &text, size_t begin) {
    constexpr const char *kDigits = "0123456789";
    size_t at = text.find_first_of(kDigits, begin);
    if (at == std::string::npos)
      return;
    size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
    constexpr const char *kNumbers[] = {
        "0",  "1",       "2",          "3",          "4",
        "99", "2000000", "2147483647", "2147483648", "-1"};
    text.replace(at, end - at, kNumbers[below(std::size(kNumbers))]);
  }

  const std::vector<std::string> &seeds;
  std::mt19937_64 random{20250401};
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SECONDS FILE...\n", argv[0]);
    return 2;
  }
  std::string name = argv[0];
  crashFile = name.substr(name.rfind('/') + 1) + "-crash";
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF})
    std::signal(signal, save);
  std::vector<std::string> seeds;
  for (int i = 2; i < argc; ++i) {
    seeds.push_back(fileText(argv[i]));
    tryInput(seeds.back());
  }
  const char *longer = std::getenv("SLUICE_FUZZ_SECONDS");
  double end = processorSeconds() + std::atof(longer ? longer : argv[1]);
  Changes changes(seeds);
  uint64_t inputs = 0;
  for (; processorSeconds() < end; ++inputs)
    tryInput(changes.next());
  std::printf("%zu seeds, %llu inputs\n", seeds.size(),
              static_cast<unsigned long long>(inputs));
  return 0;
}
