#include "compiler/passes/PassManager.h"

#include "ir/text/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"

#include <chrono>

namespace sluice {

static constexpr llvm::StringRef kArtifactNames[] = {
#define SLUICE_ARTIFACT(Name, Member, Text) Text,
#include "compiler/passes/Artifacts.def"
};

static constexpr Artifacts bit(Artifact artifact) {
  return 1u << static_cast<unsigned>(artifact);
}

#define A(Name) bit(Artifact::Name)
static constexpr PassInfo kPasses[] = {
#define SLUICE_PASS(Name, Text, Requires, Provides, Summary)                   \
  {Text, Requires, Provides, Summary, passes::Name},
#include "compiler/passes/Passes.def"
};
#undef A

llvm::ArrayRef<PassInfo> allPasses() { return kPasses; }

Pipeline fullPipeline() {
  Pipeline pipeline;
  for (const PassInfo &pass : kPasses)
    pipeline.push_back(&pass);
  return pipeline;
}

Pipeline pipelineBefore(llvm::StringRef text) {
  Pipeline pipeline = fullPipeline();
  auto reached = llvm::find_if(
      pipeline, [&](const PassInfo *pass) { return pass->text == text; });
  pipeline.erase(reached, pipeline.end());
  return pipeline;
}

const PassInfo *findPass(llvm::StringRef text) {
  const auto *found = llvm::find_if(
      kPasses, [&](const PassInfo &pass) { return pass.text == text; });
  return found == std::end(kPasses) ? nullptr : found;
}

std::string unknownPass(llvm::StringRef text) {
  auto distance = [&](const PassInfo &pass) {
    return text.edit_distance(pass.text);
  };
  const PassInfo &nearest =
      *llvm::min_element(kPasses, [&](const PassInfo &a, const PassInfo &b) {
        return distance(a) < distance(b);
      });
  return "unknown pass '" + escaped(text) + "', the nearest is '" +
         nearest.text.str() + "'";
}

/// What is left after a pass made something new: whatever comes later in the
/// walk was made from an older one.
static Artifacts after(const PassInfo &pass, Artifacts available) {
  if (!pass.makes)
    return available;
  unsigned latest = llvm::Log2_32(pass.makes);
  return (available & llvm::maskTrailingOnes<Artifacts>(latest)) | pass.makes;
}

bool parsePipeline(llvm::StringRef text, Artifacts available,
                   Pipeline &pipeline, std::string &error) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  text.split(names, ',');
  for (llvm::StringRef name : names) {
    const PassInfo *pass = findPass(name.trim());
    if (!pass) {
      error = unknownPass(name);
      return false;
    }
    if (Artifacts missing = pass->needs & ~available) {
      unsigned first = llvm::countr_zero(missing);
      error = "pass '" + pass->text.str() + "' needs " +
              kArtifactNames[first].str() +
              ", which neither the input nor an earlier pass gives";
      for (const PassInfo &other : kPasses)
        if (other.makes >> first & 1)
          error += "; '" + other.text.str() + "' makes it";
      return false;
    }
    available = after(*pass, available);
    pipeline.push_back(pass);
  }
  return true;
}

Artifacts artifactsOf(const Compilation &compilation) {
  Artifacts present = 0;
#define SLUICE_ARTIFACT(Name, Member, Text)                                    \
  if (compilation.Member)                                                      \
    present |= bit(Artifact::Name);
#include "compiler/passes/Artifacts.def"
  return present;
}

/// Drops what `pass` makes anew and what was made from it.
static void invalidate(const PassInfo &pass, Compilation &compilation) {
  Artifacts keep = after(pass, ~0u);
#define SLUICE_ARTIFACT(Name, Member, Text)                                    \
  if (!(keep & bit(Artifact::Name)))                                           \
    compilation.Member.reset();
#include "compiler/passes/Artifacts.def"
}

bool runPipeline(const Pipeline &pipeline, Compilation &compilation,
                 const PipelineOptions &options) {
  using Clock = std::chrono::steady_clock;
  for (const PassInfo *pass : pipeline) {
    invalidate(*pass, compilation);
    Clock::time_point begin = Clock::now();
    bool ok = pass->run(compilation);
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    if (options.log && options.timePasses)
      *options.log << llvm::format("%10.3f ms  ", seconds * 1e3) << pass->text
                   << '\n';
    if (options.log &&
        llvm::any_of(options.printAfter, [&](const std::string &name) {
          return name == "*" || name == pass->text;
        })) {
      *options.log << "# after " << pass->text << '\n';
      printIr(compilation, *options.log);
    }
    if (!ok)
      return false;
  }
  return true;
}

void printIr(const Compilation &compilation, llvm::raw_ostream &out) {
  auto held = [](const auto &artifact) {
    return artifact ? &*artifact : nullptr;
  };
  printIr(held(compilation.graph), held(compilation.schedule),
          held(compilation.plan), out);
}

} // namespace sluice
