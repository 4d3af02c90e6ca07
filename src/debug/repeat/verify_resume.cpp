#include "src/debug/repeat/verify_resume.h"

#include <algorithm>
#include <cstdio>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/debug/repeat/verify_resume_compare.h"
#include "src/debug/trial/child_process.h"
#include "src/io/files.h"
#include "src/train/run/trainer.h"
#include "src/train/step/step.h"

namespace lft::debug {
namespace {

/// The path without a trailing slash.
std::string plain_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

PartEnd run_apart(const RunPart& part, const ScratchDir& scratch) {
  const std::string recipe = scratch.file(part.name + ".yaml"),
                    out = scratch.file(part.name + ".json");
  io::write_file_atomic(recipe, recipe::dump_recipe(part.recipe));
  std::vector<std::string> arguments = {
      "debug", "part", recipe, "--stop-after", std::to_string(part.stop_after_step), "--out", out};
  if (part.resume) arguments.push_back("--resume");
  const int code = run_self(arguments, scratch.file(part.name));
  return code == 0 ? parse_part(io::read_json_file(out), out)
                   : PartEnd{.exit_code = code, .step = 0, .next_ids = {}};
}

class Verification {
 public:
  Verification(const recipe::Recipe& recipe, const VerifyOptions& options)
      : recipe_(recipe),
        options_(options),
        output_dir_(plain_path(recipe.output_dir)),
        scratch_(scratch_prefix()) {}

  int run() {
    const PartEnd whole = run_part("whole", "whole", 2 * options_.steps, false);
    if (whole.exit_code != 0) return whole.exit_code;
    if (whole.step < 2) {
      refuse(ErrorKind::kUsage, "a run of one step cannot be resumed", {}, {}, {},
             "raise train.max_steps or train.epochs, or give the recipe more rows");
    }
    const int64_t middle = whole.step / 2;
    print_line("whole      " + std::to_string(whole.step) + " steps in one process");
    const PartEnd half = run_part("half", "parts", middle, false);
    if (half.exit_code != 0) return half.exit_code;
    print_line("half       " + std::to_string(half.step) + " steps, then a checkpoint");
    const PartEnd resumed = run_part("resumed", "parts", whole.step, true);
    if (resumed.exit_code != 0) return resumed.exit_code;
    print_line("resumed    from it up to step " + std::to_string(resumed.step) +
               " in a new process");
    return conclude(middle, whole, resumed);
  }

 private:
  std::string scratch_prefix() const {
    const size_t slash = output_dir_.rfind('/');
    if (slash != std::string::npos && slash > 0) io::make_dirs(output_dir_.substr(0, slash));
    return output_dir_ + ".verify-resume-";
  }

  PartEnd run_part(const std::string& name, const std::string& dir, int64_t stop_after_step,
                   bool resume) const {
    RunPart part{
        .name = name, .recipe = recipe_, .stop_after_step = stop_after_step, .resume = resume};
    part.recipe.output_dir = scratch_.file(dir);
    return options_.run_part ? options_.run_part(part) : run_apart(part, scratch_);
  }

  int conclude(int64_t middle, const PartEnd& whole, const PartEnd& resumed) const {
    const std::string a = scratch_.file("whole"), b = scratch_.file("parts");
    std::vector<Compared> compared;
    if (resumed_behind(b) != middle) {
      compared.push_back({.what = "the restart",
                          .difference = "the second process did not continue after step " +
                                        std::to_string(middle)});
    } else if (resumed.step != whole.step) {
      compared.push_back(
          {.what = "the last step",
           .difference = std::to_string(whole.step) + " and " + std::to_string(resumed.step)});
    } else {
      compared = compare_parts(a, b, whole.step, whole, resumed);
    }
    const auto first =
        std::ranges::find_if_not(compared, &std::string::empty, &Compared::difference);
    const bool identical = first == compared.end();
    const std::string out =
        options_.out.empty() ? output_dir_ + ".resume-certificate.json" : options_.out;
    const std::string text =
        io::json_text(certificate(a, middle, whole, compared, identical), 2) + "\n";
    io::write_file_atomic(out, text);
    std::fputs(text.c_str(), stdout);
    if (identical) {
      print_line("identical  in " + std::to_string(compared.size()) +
                 " comparisons; the certificate is " + escape_text(out, 4000));
      return 0;
    }
    std::fflush(stdout);
    refuse(ErrorKind::kCheckpoint, "the resumed run is not the run that was never stopped",
           first->what, first->difference, "the same bits",
           out + " lists what was compared; do not resume runs of this recipe on this machine");
  }

  io::Json certificate(const std::string& dir, int64_t middle, const PartEnd& whole,
                       const std::vector<Compared>& compared, bool identical) const {
    io::Json list = io::Json::array();
    for (const Compared& each : compared) {
      list.push_back({{"what", each.what},
                      {"sha256", each.whole},
                      {"sha256_resumed", each.other},
                      {"equal", each.difference.empty()}});
      if (!each.difference.empty()) list.back()["difference"] = each.difference;
    }
    const std::string recipe_text = recipe::dump_recipe(recipe_);
    io::Json identity = io::Json::object();
    for (const checkpoint::CheckpointStatus& status :
         checkpoint::list_checkpoints(dir + "/checkpoints", /*verify=*/false)) {
      if (status.step == whole.step) identity = status.identity;
    }
    return {{"certificate", "lft verify-resume"},
            {"version", 1},
            {"verdict", identical ? "identical" : "different"},
            {"date", utc_now("%Y-%m-%dT%H:%M:%SZ")},
            {"saved_behind_step", middle},
            {"compared_behind_step", whole.step},
            {"compared", list},
            {"run_hash", last_run_hash(dir)},
            {"next_sample_ids", whole.next_ids},
            {"identity", identity},
            {"environment", io::read_json_file(dir + "/environment.json")},
            {"recipe_sha256", sha256(recipe_text)},
            {"recipe", recipe_text}};
  }

  const recipe::Recipe& recipe_;
  const VerifyOptions& options_;
  const std::string output_dir_;
  const ScratchDir scratch_;
};

}  // namespace

PartEnd train_part(const RunPart& part) {
  PartEnd end;
  const auto done = [&](int64_t step, const data::StepSamples& next) {
    end.step = step;
    end.next_ids = train::sample_ids(next);
  };
  end.exit_code = train::train(
      part.recipe,
      {.resume = part.resume, .stop_after_step = part.stop_after_step, .part_done = done});
  return end;
}

io::Json part_json(const PartEnd& end) { return {{"step", end.step}, {"next_ids", end.next_ids}}; }

PartEnd parse_part(const io::Json& json, const std::string& where) {
  PartEnd end;
  end.step = io::json_int(json, "step", 0, INT64_MAX, where);
  try {
    end.next_ids = json.at("next_ids").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception& error) {
    refuse(ErrorKind::kInput, "next_ids is not a list of texts", where, error.what(), {},
           "run it again");
  }
  return end;
}

int verify_resume(const recipe::Recipe& recipe, const VerifyOptions& options) {
  return Verification(recipe, options).run();
}

}  // namespace lft::debug
