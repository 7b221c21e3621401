//===- tests/compiler/ModelConfigs.cpp - config.json as models ------------===//
//
// tests/data/configs holds config files of published models, written down from
// memory of the published ones, without the fields that say nothing of the
// shape. The counts are those that the hub gives for the checkpoints, or
// tests/data/models.json: a field that were wrong would miss them.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Layer.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/Repository.h"

#include <filesystem>
#include <fstream>

using namespace sluice;

namespace {

const std::string kConfigs = tests::inRepository("tests/data/configs/");

struct Read {
  std::optional<Spec> spec;
  std::string messages;
};

Read readSpec(const std::string &model, const std::string &folder) {
  Diagnostics diagnostics;
  Read read;
  read.spec = parseSpec("sluice: 1\nmodel: {" + model + "}\n",
                        folder + "spec.yaml", {}, diagnostics);
  read.messages = diagnostics.render();
  return read;
}

uint64_t parameters(const std::string &model) {
  Read read = readSpec(model, kConfigs);
  INFO(model + "\n" + read.messages);
  REQUIRE(read.spec);
  Diagnostics diagnostics;
  std::optional<Model> built = buildModel(*read.spec, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(built);
  uint64_t sum = 0;
  for (const Layer &layer : built->layers)
    sum += layer.parameters;
  return sum;
}

/// A folder of its own with a config.json.
class Folder {
public:
  explicit Folder(const std::string &config) {
    path = std::filesystem::temp_directory_path() /
           ("sluice-config-" + std::to_string(count++) + "-" +
            std::to_string(reinterpret_cast<uintptr_t>(this)));
    std::filesystem::create_directory(path);
    std::ofstream(path / "config.json", std::ios::binary) << config;
  }
  ~Folder() { std::filesystem::remove_all(path); }

  /// The messages about it, with the folder left out.
  std::string messages(const std::string &beside = "") const {
    std::string text =
        readSpec("config: config.json" + beside, path.string() + "/").messages;
    std::string folder = path.string() + "/";
    for (size_t at; (at = text.find(folder)) != std::string::npos;)
      text.erase(at, folder.size());
    return text;
  }

private:
  static inline unsigned count = 0;
  std::filesystem::path path;
};

/// A config of llama with other fields for some.
std::string llama(const std::string &more) {
  return "{\n  \"model_type\": \"llama\",\n  \"num_hidden_layers\": 2,\n"
         "  \"hidden_size\": 64,\n  \"intermediate_size\": 128,\n"
         "  \"num_attention_heads\": 4,\n  \"vocab_size\": 100,\n" +
         more + "\n}\n";
}

} // namespace

TEST_CASE("config: parameters of published models") {
  struct Row {
    const char *file;
    uint64_t parameters;
  };
  const Row rows[] = {
      {"gpt2", 124'439'808},
      {"gpt-neox-20b", 20'554'567'680},
      {"bloom-176b", 176'247'271'424}, // models.json
      {"bloom-560m", 559'214'592},
      {"opt-175b", 174'604'468'224}, // models.json
      {"opt-125m", 125'239'296},
      {"llama-2-7b", 6'738'415'616},
      {"llama-3-8b", 8'030'261'248},   // models.json
      {"llama-3-70b", 70'553'706'496}, // models.json
      {"llama-3.2-1b", 1'235'814'400},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704}, // models.json
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-72b", 72'706'203'648}, // models.json
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"deepseek-v2", 235'741'434'880}, // models.json
      {"deepseek-v2-lite", 15'706'484'224},
      {"gemma-7b", 8'537'680'896},
      {"gemma-2b", 2'506'172'416},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-3-1b", 999'885'952},
      {"gemma-3-4b", 3'880'263'168}, // of the text model
  };
  for (const Row &row : rows)
    CHECK(parameters("config: " + std::string(row.file) + ".json") ==
          row.parameters);
}

// 671B, and 11.6B of the layer of multi-token prediction that are its own.
TEST_CASE("config: DeepSeek-V3 with and without multi-token prediction") {
  CHECK(parameters("config: deepseek-v3.json, mtp_layers: 0") ==
        671'026'419'200);
  const uint64_t h = 7168;
  uint64_t attention = h * 1536 + 1536 + 1536 * 128 * 192 + h * 576 + 512 +
                       512 * 128 * 256 + 128 * 128 * h;
  uint64_t block = attention + 2 * h + 257 * 3 * h * 2048 + h * 256 + 256;
  CHECK(parameters("config: deepseek-v3.json") ==
        671'026'419'200 + block + 2 * h * h + 3 * h);
}

TEST_CASE("config: what a config says of the shape") {
  Read read = readSpec("config: opt-125m.json", kConfigs);
  REQUIRE(read.spec);
  const TransformerSpec &opt = *read.spec->model.transformer;
  CHECK(opt.positions.value == 2050);
  CHECK(opt.sequence.value == 2048);
  CHECK(opt.tiedEmbeddings.value);
  CHECK(opt.dtype.value == DataType::Bf16);
  CHECK(opt.where.line == 2);
  CHECK(opt.where.column == 17);
  CHECK(read.spec->model.name.value == "spec");

  read = readSpec("config: llama-3-8b.json, sequence: 4096, dtype: fp16, "
                  "flash_attention: false, dropout: true",
                  kConfigs);
  REQUIRE(read.spec);
  const TransformerSpec &other = *read.spec->model.transformer;
  CHECK(other.sequence.value == 4096);
  CHECK(other.dtype.value == DataType::Fp16);
  CHECK_FALSE(other.flashAttention.value);
  CHECK(other.dropout.value);
  CHECK(other.kvHeads.value == 8);
  CHECK(other.headDim.value == 128);
}

TEST_CASE("config: a file of an unknown kind is refused by name") {
  std::string messages =
      Folder("{\"model_type\": \"mamba\", \"d_model\": 3}").messages();
  CHECK(messages.starts_with(
      "config.json:1:16: error: model_type is mamba, which is not known\n"));
  CHECK(messages.find("\nnote: known are gpt2, gpt_neox, bloom, opt, llama, "
                      "mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, "
                      "deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, "
                      "gemma3\n") != std::string::npos);
  CHECK(messages.find("note: model.transformer can describe others: it needs "
                      "layers, hidden, heads, vocab and sequence") !=
        std::string::npos);
  CHECK(Folder("{\"hidden_size\": 3}")
            .messages()
            .starts_with("config.json:1:1: error: the config has no "
                         "model_type\n"));
}

TEST_CASE("config: all faults of a file with their places") {
  std::string messages =
      Folder("{\n  \"model_type\": \"llama\",\n  \"hidden_size\": \"wide\",\n"
             "  \"num_attention_heads\": 0,\n  \"vocab_size\": 1e9,\n"
             "  \"num_hidden_layers\": -4,\n  \"head_dim\": [1],\n"
             "  \"tie_word_embeddings\": 1,\n  \"hidden_size\": 5,\n"
             "  \"max_position_embeddings\": 99999999999999999999\n}\n")
          .messages();
  INFO(messages);
  auto has = [&](const std::string &line) {
    return messages.find(line + "\n") != std::string::npos;
  };
  CHECK(has("config.json:3:18: error: hidden_size is wide, must be a whole "
            "number from 1 to 1048576"));
  CHECK(has("config.json:4:26: error: num_attention_heads is 0, must be from 1 "
            "to 1048576"));
  CHECK(has("config.json:5:17: error: vocab_size is 1e9, must be a whole "
            "number from 1 to 16777216"));
  CHECK(has("config.json:6:24: error: num_hidden_layers is -4, must be from 1 "
            "to 262144"));
  CHECK(has("config.json:7:15: error: head_dim is a list, must be a whole "
            "number from 1 to 1048576"));
  CHECK(has("config.json:8:26: error: tie_word_embeddings is 1, must be true "
            "or false"));
  CHECK(has("config.json:9:3: error: duplicate field hidden_size"));
  CHECK(has("config.json:10:30: error: max_position_embeddings is "
            "99999999999999999999, must be from 1 to 16777216"));
  CHECK(has("config.json:1:1: error: the config has no intermediate_size, "
            "which model_type llama needs"));
}

TEST_CASE("config: numbers in quotes are no numbers") {
  std::string messages =
      Folder(llama("  \"max_position_embeddings\": \"32\"")).messages();
  CHECK(messages.starts_with(
      "config.json:8:30: error: max_position_embeddings is a text, '32', must "
      "be a number, true or false\n"));
}

// Tabs, no spaces, escapes that YAML has otherwise, nulls.
TEST_CASE("config: JSON of every style is read") {
  std::string plain = "\"num_hidden_layers\":2,\"hidden_size\":64,"
                      "\"intermediate_size\":128,\"num_attention_heads\":4,"
                      "\"vocab_size\":100,\"max_position_embeddings\":32";
  CHECK(Folder("{\"model_type\":\"llama\"," + plain + "}").messages().empty());
  CHECK(
      Folder(
          "{\n\t\"model_type\"\t: \"llama\",\r\n\t" + plain +
          ",\n\t\"s\": \"\\ud83d\\ude00 \\/ \\u00e9 \\\\udead \xc3\xa9 # %\",\n"
          "\"head_dim\": null, \"empty\": {}, \"none\": [], \"x\": "
          "-1.5e-7\n}")
          .messages()
          .empty());
}

TEST_CASE("config: what the fields mean together") {
  std::string messages =
      Folder("{\n  \"model_type\": \"llama\",\n  \"num_hidden_layers\": 2,\n"
             "  \"hidden_size\": 64,\n  \"intermediate_size\": 128,\n"
             "  \"num_attention_heads\": 5,\n  \"vocab_size\": 100,\n"
             "  \"max_position_embeddings\": 32\n}\n")
          .messages();
  CHECK(messages.starts_with("config.json:4:18: error: model.config.hidden is "
                             "64, not divisible by 5 heads\n"));
  // OPT's table has two positions more than its sequence, here it has fewer.
  std::string opt =
      "{\"model_type\": \"opt\", \"num_hidden_layers\": 2, \"hidden_size\": "
      "64, \"num_attention_heads\": 4, \"ffn_dim\": 9, \"vocab_size\": 7, "
      "\"max_position_embeddings\": 32, \"word_embed_proj_dim\": 8, "
      "\"do_layer_norm_before\": false}";
  messages = Folder(opt).messages(", sequence: 35");
  INFO(messages);
  CHECK(messages.find("word_embed_proj_dim is 8, but of model_type opt only 64 "
                      "can be described\n") != std::string::npos);
  CHECK(messages.find("do_layer_norm_before is false, but of model_type opt "
                      "only true can be described\n") != std::string::npos);
  messages = Folder("{\"model_type\": \"opt\", \"num_hidden_layers\": 2, "
                    "\"hidden_size\": 64, \"num_attention_heads\": 4, "
                    "\"ffn_dim\": 9, \"vocab_size\": 7, "
                    "\"max_position_embeddings\": 32}")
                 .messages(", sequence: 35");
  CHECK(messages.find("model.config.positions is 34, fewer than the sequence "
                      "of 35\n") != std::string::npos);
}

TEST_CASE("config: files that are not JSON, or no files") {
  CHECK(Folder("{\"model_type\": \"llama\",\n \"hidden_size\" 3}")
            .messages()
            .starts_with("config.json:2:16: error: the config is not JSON: "));
  CHECK(Folder("").messages().starts_with(
      "config.json:1:1: error: the config is not JSON: "));
  CHECK(Folder("model_type: llama\n")
            .messages()
            .starts_with("config.json:1:1: error: the config is not JSON: "));
  CHECK(Folder("[1, 2]").messages().starts_with(
      "config.json:1:1: error: the config is not a JSON object\n"));
  CHECK(Folder(std::string(200'000, '['))
            .messages()
            .starts_with("config.json:1:1: error: the config nests more than "
                         "64 deep\n"));
  CHECK(Folder(std::string((1 << 20) + 1, ' '))
            .messages()
            .find("'config.json' has 1048577 bytes, more than the limit of "
                  "1048576\n") != std::string::npos);
  Folder folder("{}");
  std::string messages = readSpec("config: nothing.json", kConfigs).messages;
  CHECK(messages.find("nothing.json': No such file or directory\n") !=
        std::string::npos);
  messages = readSpec("config: .", kConfigs).messages;
  CHECK(messages.find("' is not a file\n") != std::string::npos);
}

TEST_CASE("config: keys of training stand beside a config only") {
  std::string messages =
      readSpec(
          "layers: [{forward: 1, backward: 1}], sequence: 8, dropout: true",
          kConfigs)
          .messages;
  CHECK(messages.find("model.sequence needs model.config; without one it is a "
                      "key of model.transformer\n") != std::string::npos);
  CHECK(messages.find("model.dropout needs model.config") != std::string::npos);
}

TEST_CASE("config: any damage to a file is refused or read, never a crash") {
  std::ifstream in(kConfigs + "gemma-3-4b.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  REQUIRE(text.size() > 100);
  for (size_t cut = 0; cut < text.size(); cut += 3)
    CHECK_FALSE(Folder(text.substr(0, cut)).messages().empty());
  for (size_t at = 0; at < text.size(); at += 5) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 0x15);
    Folder(changed).messages();
  }
}
