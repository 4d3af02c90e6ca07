// report.html: its contents, that no text can escape its element, and that long runs give small
// files.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "src/io/files.h"
#include "src/io/json.h"
#include "src/report/layer_map.h"
#include "src/report/metrics.h"
#include "src/report/report.h"
#include "src/report/series.h"
#include "tests/report/scratch.h"

namespace lft::report_test {
using namespace lft::io;
using namespace lft::report;
namespace {

// A 16x16 picture of a seven, written by PIL.
const unsigned char kSeven[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x10, 0x01, 0x03, 0x00, 0x00, 0x00, 0x25, 0x3d, 0x6d,
    0x22, 0x00, 0x00, 0x00, 0x06, 0x50, 0x4c, 0x54, 0x45, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x55,
    0xc2, 0xd3, 0x7e, 0x00, 0x00, 0x00, 0x30, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x05, 0xc1, 0x31,
    0x01, 0x00, 0x21, 0x10, 0x04, 0xb1, 0xb9, 0x69, 0xa0, 0x44, 0x02, 0x4e, 0xfe, 0xa5, 0x23, 0x01,
    0x29, 0x28, 0x60, 0x49, 0x2a, 0x08, 0x02, 0xa7, 0x49, 0xaf, 0x6c, 0x19, 0xb2, 0x64, 0x92, 0x4f,
    0x7e, 0x03, 0x37, 0x5e, 0x2a, 0x08, 0x0f, 0xf3, 0xa3, 0x0b, 0x4c, 0x52, 0x0b, 0xbb, 0x30, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t begin = text.find(open) + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

Json data_of(const std::string& page) {
  return Json::parse(between(page, "id=\"data\">", "</script>"));
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

/// Twelve decoder layers, four of vision, the projector; layer 10 not finite at step 240, the
/// tower absent at step 100.
Json sample_layers(int64_t step, double size, double growth) {
  Json layers = {{"multi_modal_projector", 2 * size}};
  for (int layer = 0; layer < 12; ++layer) {
    const double value = size * std::exp(growth * layer / 12.0) *
                         (1 + 0.3 * std::sin(static_cast<double>(step) * (layer + 1)));
    layers["language_model.model.layers." + std::to_string(layer)] =
        layer == 10 && step == 240 ? std::nan("") : value;
    if (layer < 4 && step != 100)
      layers["vision_tower.vision_model.encoder.layers." + std::to_string(layer)] = value / 3;
  }
  return layers;
}

void write_sample_run(const std::string& path) {
  MetricsFile metrics(path, 0);
  metrics.event("eval", 0, {{"eval_loss", 2.4}, {"exact_match", 0.02}});
  for (int64_t step = 1; step <= 400; ++step) {
    const double x = static_cast<double>(step), wave = std::sin(x * 12.9898) * 0.5;
    const double loss =
        step == 240 ? std::nan("") : 0.08 + 2.2 * std::exp(-x / 70) * (1 + 0.35 * wave);
    metrics.step(
        {.step = step,
         .loss = loss,
         .lr = 1e-3 * std::min(x / 12, 0.5 * (1 + std::cos(3.14159 * (x - 12) / 388))),
         .grad_norm = step == 240 ? std::nan("") : 0.4 + 6 * std::exp(-x / 50) * (1 + wave),
         .precision = step < 240 ? "bf16" : "fp32",
         .supervised_tokens = 64,
         .tokens = 900,
         .tokens_per_s = 5200 + 400 * wave - (step > 240 ? 1800 : 0),
         .step_s = 0.17});
    if (step % 100 == 0)
      metrics.event("checkpoint", step, {{"path", "checkpoints/step-" + std::to_string(step)}});
    if (step % 100 == 0)
      metrics.event(
          "eval", step,
          {{"eval_loss", 0.1 + 2.3 * std::exp(-x / 75)}, {"exact_match", 1 - std::exp(-x / 120)}});
    if (step == 240)
      metrics.event("fp32_recovery", step,
                    {{"reason", "non-finite loss in bf16"}, {"lr_factor", 0.5}});
    if (step % 20 == 0) {
      metrics.event("layer_grad_norms", step,
                    {{"norm", "l2"}, {"layers", sample_layers(step, 0.3 * std::exp(-x / 120), 6)}});
      metrics.event("layer_activation_norms", step,
                    {{"norm", "rms"}, {"layers", sample_layers(step, 0.6, 0.3)}});
    }
    if (step == 300) {
      metrics.event("norm_warning", step,
                    {{"kind", "divergence"},
                     {"modules", {"language_model.model.layers.3.mlp.up_proj"}},
                     {"now", 31.5},
                     {"what",
                      "the gradient norm has risen from 0.4 to 31.5, and the loss from 0.2 to 1.9: "
                      "divergence in progress"},
                     {"next", "lower optim.lr"}});
    }
  }
}

ReportInput sample_input(const std::string& metrics_path) {
  ReportInput input{.title = "quickstart: digits <b>&\"</title>",
                    .metrics_path = metrics_path,
                    .recipe_text =
                        "version: 1\noutput_dir: runs/quickstart\n# "
                        "</pre></script><script>window.broken = 1</script>\n",
                    .environment_json = "{\n  \"lft\": \"0.1.0\"\n}\n",
                    .facts = {{"trainable parameters", "184,320 of 2.7 M"},
                              {"final loss", "0.0812"},
                              {"exact match", "0.94"},
                              {"time", "1:08"}},
                    .end = RunEnd{.total_steps = 400},
                    .details = {{"run", "0123456789abcdef"}},
                    .answers = {}};
  const std::string seven(reinterpret_cast<const char*>(kSeven), sizeof kSeven);
  for (int i = 0; i < 6; ++i) {
    input.answers.push_back({"test-" + std::to_string(i), "<image>\nWhich digit is this?", "7",
                             i == 3 ? "1" : " 7\n", seven});
  }
  input.answers.push_back({"<i>text only</i>", "Say </script><!-- <img src=x onerror=alert(1)>",
                           "<b>7</b>\xff", "", ""});
  return input;
}

TEST(Report, PageStandsAlone) {
  const test::Scratch scratch;
  write_sample_run(scratch.path("metrics.jsonl"));
  // The browser test names a path at which the page is kept.
  const char* keep = std::getenv("LFT_SAMPLE_REPORT");
  const std::string path = keep != nullptr ? keep : scratch.path("report.html");
  write_report(path, sample_input(scratch.path("metrics.jsonl")));
  const std::string page = read_file(path);
  EXPECT_NE(page.find("Chart.js v3."), std::string::npos);
  EXPECT_NE(page.find("Released under the MIT License"), std::string::npos);
  EXPECT_EQ(page.find("{{title}}"), std::string::npos);
  for (const char* load : {"src=\"http", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    EXPECT_EQ(page.substr(0, page.find("<script>")).find(load), std::string::npos) << load;
  }
}

TEST(Report, NoTextLeavesItsPlace) {
  const test::Scratch scratch;
  write_report(scratch.path("report.html"), sample_input(scratch.path("none.jsonl")));
  const std::string page = read_file(scratch.path("report.html"));
  EXPECT_EQ(between(page, "<title>", "</title>"),
            "quickstart: digits &lt;b&gt;&amp;&quot;&lt;/title&gt;");
  EXPECT_EQ(count(page, "</script>"), 3u);
  EXPECT_EQ(between(page, "id=\"data\">", "</script>").find('<'), std::string::npos);
  const Json data = data_of(page);
  EXPECT_EQ(data["answers"][6]["reference"], "<b>7</b>\xef\xbf\xbd");
  EXPECT_EQ(data["answers"][6]["question"], "Say </script><!-- <img src=x onerror=alert(1)>");
  EXPECT_EQ(data["under"], "no step recorded");
}

TEST(Report, AnswersMatchAfterTrimmingAndCarryTheirImage) {
  const test::Scratch scratch;
  write_report(scratch.path("r.html"), sample_input(""));
  const Json answers = data_of(read_file(scratch.path("r.html")))["answers"];
  EXPECT_TRUE(answers[0]["right"]);
  EXPECT_FALSE(answers[3]["right"]);
  EXPECT_EQ(answers[0]["question"], "Which digit is this?");
  EXPECT_EQ(answers[0]["image"],  // Python's base64 of the same bytes
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQAQMAAAAlPW0iAAAABlBMVEX///"
            "8AAABVwtN+AAAAMElEQVR42gXBMQEAIRAEsblpoEQCTv6lIwEpKGBJKggCp"
            "0mvbBmyZJJPfgM3XioID/OjC0xSC7swAAAAAElFTkSuQmCC");
  EXPECT_EQ(answers[6]["image"], "");
  ReportInput input;
  for (const char* bytes : {"\xff\xd8\xff", "\xff\xd8\xff\x01", "\xff\xd8\xff\x01\x02"})
    input.answers.push_back({"", "", "", "", bytes});
  write_report(scratch.path("r.html"), input);
  const Json jpegs = data_of(read_file(scratch.path("r.html")))["answers"];
  EXPECT_EQ(jpegs[0]["image"], "data:image/jpeg;base64,/9j/");
  EXPECT_EQ(jpegs[1]["image"], "data:image/jpeg;base64,/9j/AQ==");
  EXPECT_EQ(jpegs[2]["image"], "data:image/jpeg;base64,/9j/AQI=");
}

TEST(Report, CurvesAndEventsComeFromTheMetrics) {
  const test::Scratch scratch;
  write_sample_run(scratch.path("m"));
  std::ofstream(scratch.path("m"), std::ios::app)
      << "{\"step\":400,\"loss\":9}\n{\"step\":401,\"lo";  // repeated after a resume; truncated
  write_report(scratch.path("r.html"), sample_input(scratch.path("m")));
  const Json data = data_of(read_file(scratch.path("r.html")));
  const Json& loss = data["series"]["loss"];
  ASSERT_EQ(loss.size(), 400u);
  EXPECT_EQ(loss[399], Json::array({400.0, 9.0}));
  EXPECT_EQ(loss[239], Json::array({240.0, nullptr}));
  EXPECT_EQ(data["series"]["eval_loss"].size(), 5u);
  EXPECT_EQ(data["alarms"], Json::array({240, 300}));
  EXPECT_EQ(data["steps"], Json::array({0.0, 400}));
  EXPECT_EQ(data["events"].size(), 11u);
  const Json& warning = data["events"][8];
  EXPECT_EQ(warning["name"], "norm_warning");
  EXPECT_EQ(warning["fields"].size(), 2u)
      << "the two sentences, without the numbers that stand in them: " << warning.dump();
  EXPECT_EQ(data["events"][0]["name"], "eval");
  EXPECT_EQ(data["under"], "400 steps · 1 lines of metrics.jsonl could not be read");
}

TEST(Report, AnEventCarriesTheImageOfTheRowAtFault) {
  const test::Scratch scratch;
  std::ofstream(scratch.path("seven.png"), std::ios::binary)
      .write(reinterpret_cast<const char*>(kSeven), sizeof kSeven);
  const auto page = [&](const std::string& image) {
    const Json event = {{"step", 3},
                        {"event", "stopped"},
                        {"culprit", "digit-0058, position 17"},
                        {"image", image}};
    write_report(scratch.path("r.html"), {.title = "t", .metrics_text = event.dump() + "\n"});
    return data_of(read_file(scratch.path("r.html")))["events"][0];
  };
  const Json shown = page(scratch.path("seven.png"));
  EXPECT_EQ(shown["image"].get<std::string>().rfind("data:image/png;base64,iVBOR", 0), 0u);
  EXPECT_EQ(shown["fields"], Json::parse(R"([["culprit", "digit-0058, position 17"]])"));
  EXPECT_EQ(page(scratch.path("gone.png"))["image"], "");
  EXPECT_EQ(page(scratch.path("m"))["image"], "");
}

TEST(Report, LayersAreATableInTheOrderOfTheForwardPass) {
  const test::Scratch scratch;
  write_sample_run(scratch.path("m"));
  std::ofstream(scratch.path("m"), std::ios::app)
      << R"({"event":"layer_grad_norms","step":400,"layers":{"language_model.lm_head":7}})"
      << "\n"
      << R"({"event":"layer_grad_norms","step":410,"layers":[1]})"
      << "\n";
  write_report(scratch.path("r.html"), sample_input(scratch.path("m")));
  const Json data = data_of(read_file(scratch.path("r.html")));
  const Json& map = data["layers"]["layer_activation_norms"];
  EXPECT_EQ(map["steps"].size(), 20u);
  EXPECT_EQ(map["rows"], Json::array({"vision 0", "vision 1", "vision 2", "vision 3", "projector",
                                      "llm 0", "llm 1", "llm 2", "llm 3", "llm 4", "llm 5", "llm 6",
                                      "llm 7", "llm 8", "llm 9", "llm 10", "llm 11"}));
  EXPECT_EQ(map["names"][15], "language_model.model.layers.10");
  EXPECT_EQ(map["values"][15][11], nullptr) << "not finite at step 240";
  EXPECT_EQ(map["values"][0][4], false) << "absent at step 100";
  EXPECT_EQ(map["values"][4][0], 1.2);
  const Json& gradients = data["layers"]["layer_grad_norms"];
  EXPECT_EQ(gradients["rows"].size(), 18u);
  EXPECT_EQ(gradients["rows"][5], "language_model.lm_head")
      << "what is beside the stack comes before it";
  EXPECT_EQ(gradients["values"][5][19], 7) << "the later line of a step counts";
  EXPECT_EQ(gradients["values"][6][19], false);
}

TEST(Report, AMapOfManyStepsKeepsAnEvenChoice) {
  std::map<int64_t, Json> records;
  for (int64_t step = 1; step <= 5000; ++step)
    records[step * 10] = {{"layers", {{"multi_modal_projector", step}}}};
  const Json map = layer_map(records);
  ASSERT_EQ(map["steps"].size(), 200u);
  EXPECT_EQ(map["steps"][0], 10);
  EXPECT_EQ(map["steps"][199], 50000);
  for (size_t i = 1; i < 200; ++i) {
    const int64_t gap = map["steps"][i].get<int64_t>() - map["steps"][i - 1].get<int64_t>();
    EXPECT_GE(gap, 250);
    EXPECT_LE(gap, 260);
  }
  EXPECT_EQ(map["values"][0][199], 5000);
  EXPECT_EQ(layer_map({}), nullptr);
  records.erase(std::next(records.begin()), records.end());
  EXPECT_EQ(layer_map(records)["steps"], Json::array({10}));
}

TEST(Report, EveryGroupsRateAndTheAnswersBeforeAreThere) {
  const test::Scratch scratch;
  {
    std::ofstream file(scratch.path("m"));
    for (const int step : {1, 2})
      file << "{\"step\":" << step
           << ",\"loss\":1,\"lr\":1e-4,\"lrs\":{\"projector\":2e-5,\"base B\":" << step << "}}\n";
    file << "{\"step\":3,\"loss\":1,\"lr\":1e-4,\"lrs\":7}\n";
  }
  ReportInput input;
  input.metrics_path = scratch.path("m");
  input.answers = {
      {.id = "a",
       .question = "q",
       .reference = "7",
       .answer = "7",
       .image_png = "",
       .before = "<b>1"},
      {.id = "b", .question = "q", .reference = "7", .answer = "7", .image_png = "", .before = ""},
      {.id = "c", .question = "q", .reference = "7", .answer = "7", .image_png = ""}};
  input.answers_of = "held-out rows";
  write_report(scratch.path("r.html"), input);
  const Json data = data_of(read_file(scratch.path("r.html")));
  EXPECT_EQ(data["series"]["lr projector"], Json::parse("[[1.0,2e-5],[2.0,2e-5]]"));
  EXPECT_EQ(data["series"]["lr base B"], Json::parse("[[1.0,1.0],[2.0,2.0]]"));
  EXPECT_EQ(data["answers"][0]["before"], "<b>1");
  EXPECT_EQ(data["answers"][1]["before"], "");  // shown as (nothing)
  EXPECT_TRUE(data["answers"][2]["before"].is_null());
  EXPECT_EQ(data["answers_of"], "held-out rows");
}

TEST(Report, LongRunsStaySmallAndKeepTheRecovery) {
  const test::Scratch scratch;
  {
    std::ofstream file(scratch.path("m"));
    for (int step = 1; step <= 30000; ++step) {
      file << "{\"step\":" << step << ",\"loss\":" << (step == 17777 ? 99 : 1)
           << ",\"lr\":1e-4,\"grad_norm\":1,\"tokens_per_s\":5}\n";
      if (step % 10 == 0) file << "{\"event\":\"checkpoint\",\"step\":" << step << "}\n";
      if (step == 20000) file << "{\"event\":\"fp32_recovery\",\"step\":20000}\n";
    }
  }
  write_report(scratch.path("r.html"), {.title = "",
                                        .metrics_path = scratch.path("m"),
                                        .recipe_text = "",
                                        .environment_json = "",
                                        .facts = {},
                                        .answers = {}});
  const Json data = data_of(read_file(scratch.path("r.html")));
  for (const auto& [name, series] : data["series"].items()) EXPECT_LE(series.size(), 2000u) << name;
  double highest = 0;
  for (const Json& point : data["series"]["loss"])
    highest = std::max(highest, point[1].get<double>());
  EXPECT_EQ(highest, 99);
  EXPECT_EQ(data["alarms"], Json::array({20000}));
  EXPECT_EQ(data["events"].size(), 201u);
  EXPECT_EQ(data["hidden_events"], 2800);
}

TEST(Report, ARunHasItsVerdictTimeAndBestFigureOnTop) {
  const test::Scratch scratch;
  write_sample_run(scratch.path("m"));
  ReportInput input = sample_input(scratch.path("m"));
  input.facts = {{"model", "checkpoints/a"}, {"rank", "16"}};
  input.details = {{"run", "0123"}};
  const auto page = [&](RunState state) {
    input.end = RunEnd{.state = state, .total_steps = 800, .answered = "5 of 6"};
    write_report(scratch.path("r.html"), input);
    return data_of(read_file(scratch.path("r.html")));
  };
  const Json done = page(RunState::kDone);
  EXPECT_EQ(done["state"], "finished");
  EXPECT_EQ(done["verdict"]["kind"], "learnt");
  EXPECT_EQ(done["facts"][0], Json::array({"model", "checkpoints/a"}));
  EXPECT_EQ(done["facts"][2], Json::array({"time", "1:08, 0.17 s a step"}));  // 400 x 0.17 s
  EXPECT_EQ(done["facts"][3], Json::array({"best figure", "held-out loss 0.1111 (step 400)"}));
  EXPECT_EQ(done["facts"][4], Json::array({"answered exactly", "5 of 6"}));
  EXPECT_EQ(done["details"], Json::parse(R"([["run", "0123"]])"));
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(done["written"].get<double>(), now, 60);
  const Json running = page(RunState::kRunning);
  EXPECT_EQ(running["state"], "running");
  EXPECT_EQ(running["facts"][2][1], "1:08, 0.17 s a step, about 1:08 left");
  EXPECT_EQ(running["slowest_s"], 60);
  EXPECT_EQ(page(RunState::kStopped)["state"], "stopped");
  EXPECT_EQ(page(RunState::kFailed)["verdict"]["kind"], "failed");
}

TEST(Report, WarningsAndIncidentsAreAlarmsAndOnlyIncidentsMarkTheCurves) {
  const test::Scratch scratch;
  std::string lines;
  for (const char* event : {"warning", "sample_skipped", "images_unseen", "step_skipped", "eval"})
    lines += Json({{"event", event}, {"step", 7}, {"text", "t"}}).dump() + "\n";
  write_report(scratch.path("r.html"), {.title = "t", .metrics_text = lines});
  const Json data = data_of(read_file(scratch.path("r.html")));
  std::vector<bool> alarms;
  for (const Json& event : data["events"]) alarms.push_back(event["alarm"]);
  EXPECT_EQ(alarms, (std::vector<bool>{true, true, true, true, false}));
  EXPECT_EQ(data["alarms"], Json::array({7}));
}

/// A pair has log-probabilities and margins before, at evaluations and after, as curves and rows.
TEST(Report, PairsHaveBothAnswersAndTheirMargins) {
  const test::Scratch scratch;
  ReportInput input;
  input.metrics_text =
      R"({"step":1,"loss":0.69,"reward_accuracy":1,"reward_margin":0,"rewards_chosen":0,)"
      R"("rewards_rejected":0,"logps_chosen":-5,"logps_rejected":-6})"
      "\n"
      R"({"event":"eval","step":1,"eval_loss":0.6,"samples":4,"reward_accuracy":0.75,)"
      R"("reward_margin":0.1})"
      "\n"
      R"({"event":"eval_answers","step":1,"answers":[{"id":"a","answer":"so",)"
      R"("pair":[-5,-6.5,0.05]}]})"
      "\n"
      R"({"step":2,"loss":0.6,"reward_accuracy":1,"reward_margin":0.2,"rewards_chosen":0.1,)"
      R"("rewards_rejected":-0.1,"logps_chosen":-4,"logps_rejected":-7})"
      "\n"
      R"({"event":"eval_answers","step":2,"answers":[{"id":"a","answer":"so",)"
      R"("pair":[-4,-7,-0.2]}]})"
      "\n";
  input.end = RunEnd{.total_steps = 2, .figure = "reward_accuracy"};
  input.answers = {
      {.id = "a", .question = "Q", .reference = "yes", .answer = "so", .image_png = {}}};
  ReportPair& pair = input.answers[0].pair.emplace();
  pair.rejected = "</script>no";
  pair.before = {.chosen = -5, .rejected = -6};
  const char* keep = std::getenv("LFT_SAMPLE_REPORT");
  const std::string path = keep != nullptr ? keep : scratch.path("r.html");
  const auto shown = [&] {
    write_report(path, input);
    return data_of(read_file(path));
  };
  input.answers[0].answered = false;
  const Json running = shown()["answers"][0];
  const Json before = {"before", -5.0, -6.0, nullptr}, first = {"step 1", -5.0, -6.5, 0.05};
  EXPECT_EQ(running["pair"]["rejected"], "</script>no");
  EXPECT_EQ(running["pair"]["rows"], (Json{before, first, {"step 2", -4.0, -7.0, -0.2}}));
  EXPECT_EQ(running["right"], false);
  input.answers[0].answered = true;
  pair.after = {.chosen = -3, .rejected = -7, .margin = 0.4};
  const Json page = shown();
  EXPECT_EQ(page["answers"][0]["pair"]["rows"], (Json{before, first, {"after", -3.0, -7.0, 0.4}}))
      << "the last step is shown once";
  EXPECT_EQ(page["answers"][0]["right"], true);
  EXPECT_EQ(page["series"]["reward_margin"].size(), 2u);
  EXPECT_EQ(page["series"]["reward_accuracy"].size(), 1u) << "step 1 is at the reference";
  EXPECT_EQ(page["series"]["held-out reward_accuracy"], (Json{{1.0, 0.75}}));
  const auto fact = [&](const std::string& name) {
    for (const Json& each : page["facts"])
      if (each[0] == name) return each[1].get<std::string>();
    return std::string();
  };
  EXPECT_EQ(fact("best figure"), "reward accuracy 0.75 (step 1)");
  EXPECT_EQ(fact("reward accuracy"), "75% of 4 held-out pairs, margin 0.1");
}

TEST(Report, RunsWithExpertsHaveTheirFiguresAsCurves) {
  const test::Scratch scratch;
  ReportInput input;
  const auto shown = [&](const std::string& more) {
    input.metrics_text =
        R"({"step":1,"loss":2)" + more + "}\n" + R"({"step":2,"loss":1)" + more + "}\n";
    write_report(scratch.path("r.html"), input);
    return data_of(read_file(scratch.path("r.html")))["series"];
  };
  const Json series = shown(R"(,"experts_unused":0.25,"expert_load":3)");
  EXPECT_EQ(series["expert_load"], (Json{{1.0, 3.0}, {2.0, 3.0}}));
  EXPECT_EQ(series["experts_unused"], (Json{{1.0, 0.25}, {2.0, 0.25}}));
  EXPECT_FALSE(series.contains("balance_loss"));
  EXPECT_FALSE(shown("").contains("expert_load"));
}

/// During the run a row has the answers of the evaluations so far.
TEST(Report, ARowThatIsNotYetAnsweredHasTheAnswerOfTheLastEvaluation) {
  const test::Scratch scratch;
  ReportInput input;
  input.answers = {{.id = "a",
                    .question = "<image>\nWhich?",
                    .reference = "7",
                    .answer = {},
                    .image_png = {},
                    .before = "1",
                    .note = "the picture is not shown: too large",
                    .answered = false}};
  const auto row = [&](const std::string& metrics) {
    input.metrics_text = metrics;
    write_report(scratch.path("r.html"), input);
    return data_of(read_file(scratch.path("r.html")))["answers"][0];
  };
  EXPECT_EQ(row("")["answer"], nullptr);
  EXPECT_EQ(row("")["right"], false);
  EXPECT_EQ(row("")["question"], "Which?") << "its placeholder goes without a picture, too";
  const Json answered =
      row(R"({"event":"eval_answers","step":10,"answers":[{"id":"a","answer":"4"}]})"
          "\n"
          R"({"event":"eval_answers","step":20,"answers":[{"id":"a","answer":" 7"}]})");
  EXPECT_EQ(answered["answer"], " 7");
  EXPECT_EQ(answered["answered_at"], 20);
  EXPECT_EQ(answered["right"], true);
  EXPECT_EQ(answered["evaluations"], Json::parse(R"([[10, "4"]])"));
  input.answers[0].answered = true;
  input.answers[0].answer = "7";
  const std::string step = R"({"step":20,"loss":1})"
                           "\n",
                    eval =
                        R"({"event":"eval_answers","step":20,"answers":[{"id":"a","answer":"7"}]})";
  EXPECT_TRUE(row(step + eval)["evaluations"].empty()) << "the same answer at the last step";
}

TEST(Series, ThinKeepsEndsOrderAndExtremes) {
  Series series;
  for (int i = 0; i < 9999; ++i)
    series.push_back({static_cast<double>(i), i % 7 == 0 ? std::nan("") : std::sin(i)});
  const Series out = thin(series, 100);
  EXPECT_LE(out.size(), 100u);
  EXPECT_EQ(out.front().x, 0);
  EXPECT_EQ(out.back().x, 9998);
  for (size_t i = 1; i < out.size(); ++i) EXPECT_LT(out[i - 1].x, out[i].x);
  EXPECT_EQ(thin(Series(50), 100).size(), 50u);
}

TEST(Series, SmoothIsTheDebiasedRunningMean) {
  const Series out =
      smooth({{1, 4},
              {2, std::nan("")},
              {3, 2}});  // window 5: weights 0.8, then (0.8 x 0.2 x 4 + 0.2 x 2) / 0.36
  ASSERT_EQ(out.size(), 2u);
  EXPECT_DOUBLE_EQ(out[0].y, 4);
  EXPECT_NEAR(out[1].y, (0.16 * 4 + 0.2 * 2) / 0.36, 1e-12);
}

}  // namespace
}  // namespace lft::report_test
