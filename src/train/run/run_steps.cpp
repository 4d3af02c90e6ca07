#include "src/train/run/run_steps.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/held_out.h"
#include "src/io/files.h"
#include "src/recipe/train_command.h"
#include "src/recipe/value_text.h"
#include "src/runs/halving.h"
#include "src/train/inputs/preflight.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/peak_memory.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/proof/final_check.h"
#include "src/train/record/run_files.h"
#include "src/train/record/saved_steps.h"
#include "src/train/run/closing.h"
#include "src/train/run/evaluations.h"
#include "src/train/run/non_finite.h"
#include "src/train/run/outputs.h"
#include "src/train/run/pairs_judged.h"
#include "src/train/run/peak_record.h"
#include "src/train/run/run.h"
#include "src/train/run/run_page.h"
#include "src/train/run/run_saves.h"
#include "src/train/run/sample_answers.h"
#include "src/train/run/step_norm_records.h"
#include "src/train/run/step_options.h"
#include "src/train/step/recovery.h"
#include "src/train/step/samples_ahead.h"

namespace lft::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The step after which a partial run ends; 0: it runs to its end.
int64_t last_step_of_part(const RunInputs& inputs, const TrainOptions& options) {
  if (!options.first_third) return options.stop_after_step;
  const int64_t last = runs::halving_step(inputs.total_steps, inputs.recipe.train.eval_every_steps);
  return last < inputs.total_steps ? last : 0;
}

/// Steps, saves and records until the run is done or stopped.
class Trainer {
 public:
  Trainer(Run& run, RunMemory& memory, const PeakMemory& peak, const TrainOptions& options,
          uint64_t metrics_bytes)
      : run_(run),
        ranks_(*options.ranks),
        memory_(memory),
        peak_(peak),
        recipe_(run.recipe),
        options_(run_step_options(run)),
        graphs_(make_graph_passes(run)),
        stop_after_step_(last_step_of_part(run, options)),
        part_done_(options.part_done),
        folder_goes_(options.folder_goes),
        files_(recipe_,
               {.total_steps = run.total_steps,
                .first_step = run.state.step,
                .steps_per_epoch = run.steps_per_epoch,
                .plain_every = recipe_.log.every_steps},
               metrics_bytes, options.ranks->first()),
        saved_(recipe_, /*behind=*/!run.device.is_cpu()),
        saves_(run, ranks_, files_, saved_),
        evaluations_(run, ranks_, memory, files_, saved_),
        page_(run, /*writes=*/options.ranks->first() && options.stop_after_step == 0),
        norms_(run, ranks_, files_),
        peak_memory_(run, files_) {
    options_.gradients_ready = options.gradients_ready;
    options_.passes = graphs_.get();
    options_.ranks = &ranks_;
    if (!ranks_.first()) return;
    io::write_file_atomic(path("recipe.resolved.yaml"), recipe::dump_recipe(recipe_));
    io::write_file_atomic(path("environment.json"),
                          environment_json(run.device, recipe_.train.deterministic).dump(2) + "\n");
    if (recipe_.data.eval_share > 0 &&
        !(run.state.step > 0 && io::path_exists(path("held_out.jsonl"))))
      io::write_file_atomic(path("held_out.jsonl"), data::row_list(*run.data.eval));
  }

  int run(bool resumed) {
    const io::Json plan = {{"total_steps", run_.total_steps}, {"folder", io::absolute_path(".")}};
    if (resumed) {
      saves_.mark_saved();
      io::Json fields = plan;
      fields["precision"] = compute_name(run_.state.compute);
      files_.event("resume", run_.state.step, fields);
    } else {
      files_.event("start", 0, plan);
    }
    if (run_.state.step == 0 && ranks_.first()) record_answers_before(run_);
    if (!resumed && recipe_.checkpoint.at_step_zero) save();
    page_.refresh(facts());
    try {
      return run_to_end();
    } catch (const Error& error) {
      const Error agreed = ranks_.failed(error);
      if (dist::group_is_broken()) {
        drop_passes();
        saves_.save_committed();
        files_.event("stopped", run_.state.step, {{"reason", agreed.what()}});
      }
      if (!ranks_.first() || dist::group_is_broken()) {
        leave_page(agreed.what());
        throw agreed;
      }
      end_with(agreed);
    } catch (const std::exception& error) {
      leave_page(error.what());
      throw;
    }
  }

 private:
  int run_to_end() {
    saves_.commit();
    if (run_.last_eval.due && evaluate()) saves_.mark_unsaved();
    loop();
    files_.steps_done();
    drop_passes();  // the following work needs their memory
    saves_.finish();
    if (signal_ == 0) signal_ = agreed_signal(ranks_);
    if (signal() != 0) return stop(signal());
    const double peak = peak_.growth();
    if (stop_after_step_ == 0) return finish(peak);
    peak_memory_.record(peak);
    save_outputs(run_);
    return 0;
  }

  [[noreturn]] void end_with(const Error& error) {
    if (error.kind() == ErrorKind::kNumeric) {
      drop_passes();
      saves_.save_before_non_finite();
    }
    if (error.kind() == ErrorKind::kInput && run_.state.step > 0) stop_for_data(error);
    leave_page(error.what());
    throw Error(error);
  }

  /// The signal that ends the run: this process's own, or that agreed on by several processes.
  int signal() const { return ranks_.alone() ? requested_signal() : signal_; }

  /// Reports this process's phase to the other processes.
  void at(const std::string& phase) { ranks_.at(phase); }

  void loop() {
    const std::unique_ptr<data::Loader> loader = start_loader(run_, run_.state.step);
    SamplesAhead ahead(*loader);
    files_.steps_begin();
    clock_.lap();
    const int64_t last =
        stop_after_step_ > 0 ? std::min(stop_after_step_, run_.total_steps) : run_.total_steps;
    options_.while_device_works = [&] {
      if (run_.state.step + 1 == last && !part_done_) return;
      const int64_t before = memory_.watch.live();
      ahead.fetch();
      ahead_bytes_ = memory_.watch.live() - before;
    };
    while (run_.state.step < last && signal() == 0 && !run_.best.waited(recipe_.train.patience)) {
      saves_.commit();
      at("step " + std::to_string(run_.state.step + 1) + ", reading its samples");
      data::StepSamples samples = ahead.next();
      const GlobalBatch whole =
          gather_global_batch(ranks_, samples, requested_signal(), run_.objective->uses_kl());
      signal_ = whole.signal;
      if (signal_ != 0) break;
      note_skipped(whole);
      take_step(std::move(samples), whole);
      saves_.commit();
      const int64_t step = run_.state.step, every = recipe_.train.eval_every_steps;
      const bool ends = step == run_.total_steps;  // finish() evaluates then
      run_.last_eval.scheduled = every > 0 && step % every == 0;
      run_.last_eval.due = has_held_out() && (ends || run_.last_eval.scheduled);
      if (run_.last_eval.due && !ends) evaluate();
      if (step % recipe_.checkpoint.every_steps == 0) save();
      refresh_page();
    }
    options_.while_device_works = {};
    if (part_done_ && signal() == 0) part_done_(run_.state.step, ahead.next());
  }

  void take_step(data::StepSamples samples, const GlobalBatch& whole) {
    const StepState before = run_.state;
    ahead_bytes_ = 0;
    memory_.begin("step " + std::to_string(before.step + 1), sample_ids(samples));
    peak_memory_.note(samples);
    const StepOutcome outcome = step_within_memory(samples, whole);
    samples.made.reset();  // a step that ran in parts did not use it
    for (const std::string& note :
         graphs_ ? graphs_->graphs().take_notes() : std::vector<std::string>())
      files_.note(note);
    const std::string leak = memory_.step_done(/*look_for_leaks=*/true, ahead_bytes_);
    if (!leak.empty()) {
      files_.event("memory_grows", before.step + 1, {{"what", leak}});
      files_.note("warning: " + leak);
    }
    const StepTimes times = clock_.lap();
    const StepHashes hashes = fold_step(run_.hash, whole.ids, outcome.loss);
    run_.hash = hashes.run;
    switch (outcome.result) {
      case StepResult::kTaken:
        record(whole, outcome, hashes, times);
        if (ranks_.alone()) last_good_ = std::move(samples);
        last_good_step_ = run_.state.step;
        return;
      case StepResult::kEmpty:
      case StepResult::kOverflow:
        files_.event("step_skipped", run_.state.step,
                     {{"reason", outcome.reason},
                      {"tokens", outcome.tokens},
                      {"loss_scale", outcome.loss_scale},
                      {"ids_hash", hashes.ids},
                      {"run_hash", hashes.run}});
        files_.note("step " + std::to_string(run_.state.step) + " skipped: " + outcome.reason);
        return;
      case StepResult::kNonFinite:
        drop_passes();  // FP32 passes do not use it
        answer({.samples = samples,
                .outcome = outcome,
                .before = before,
                .hashes = hashes,
                .last_good = last_good_,
                .last_good_step = last_good_step_});
        clock_.lap();  // the replay of an incident is not part of the next step
    }
  }

  /// With several processes rank 0 reads and examines the samples of all; the others recover, or
  /// receive the error that ends the run.
  void answer(const NonFiniteStep& step) {
    const bool recovers = can_recover(step.before, recipe_.precision.recovery);
    if (!recovers) saves_.save_before_non_finite();
    if (ranks_.alone()) return handle_non_finite_step(run_, files_, options_, step);
    at("step " + std::to_string(step.before.step + 1) + ", what was not finite");
    if (ranks_.first()) {
      const data::StepSamples samples = read_step(run_, step.before.step + 1);
      if (last_good_step_ > 0) last_good_ = read_step(run_, last_good_step_);
      handle_non_finite_step(run_, files_, options_,
                             {.samples = samples,
                              .outcome = step.outcome,
                              .before = step.before,
                              .hashes = step.hashes,
                              .last_good = last_good_,
                              .last_good_step = last_good_step_});
      last_good_.reset();
    } else if (recovers) {
      recover(run_.state, run_.optimizer, run_.scaler, recipe_.precision.lr_backoff);
    } else {
      ranks_.exchange("");  // throws rank 0's error
    }
  }

  /// The first step and every Nth one record the norms of the layers' outputs.
  StepOutcome measured_step(const data::StepSamples& samples, const GlobalBatch& whole) {
    std::optional<ObserveCalls> observe;
    if (ActivationNorms* observer = norms_.begin_step()) observe.emplace(*observer);
    if (graphs_) graphs_->graphs().use_graphs(!observe.has_value());
    return train_step({run_.model.model, run_.optimizer, run_.scaler, run_.schedule}, options_,
                      samples, whole, run_.state);
  }

  /// Retries a step that ran out of memory with less: without CUDA graphs, whose memory has no
  /// other use, and after a recovery, whose FP32 activations are larger, according to
  /// reduce_memory_use(). Nothing was updated.
  StepOutcome step_within_memory(const data::StepSamples& samples, const GlobalBatch& whole) {
    while (true) {
      try {
        return measured_step(samples, whole);
      } catch (const std::exception& error) {
        run_.optimizer.drop_gradients();
        if (!is_out_of_memory(error)) throw;
        if (graphs_) {
          drop_passes();
          files_.note("continuing without CUDA graphs: memory ran out with them in step " +
                      std::to_string(run_.state.step + 1));
          continue;
        }
        if (!run_.state.recovered || !reduce_memory_use(run_.state, whole.most_rows())) throw;
      }
      files_.event("memory_spared", run_.state.step + 1,
                   {{"recompute", run_.state.recompute}, {"split", run_.state.split}});
      files_.note("step " + std::to_string(run_.state.step + 1) +
                  " ran out of memory in fp32: every block is recomputed from here on" +
                  (run_.state.split > 1
                       ? ", micro-batches run in " + std::to_string(run_.state.split) + " parts"
                       : ""));
    }
  }

  void record(const GlobalBatch& whole, const StepOutcome& outcome, const StepHashes& hashes,
              const StepTimes& times) {
    run_.last_loss = outcome.loss;
    run_.tokens += outcome.tokens;
    files_.step(outcome, run_.state, hashes, rates_of(run_.optimizer, outcome.lr_factor), times,
                peak_.growth());
    const int64_t every = recipe_.log.layer_grad_norms_every;
    if (every > 0 && run_.state.step % every == 0)
      files_.layer_norms(outcome, run_.optimizer, run_.state.step);
    norms_.record(whole, outcome);
    if (run_.state.step == 1) {
      if (const auto info = judge_pairs_start(run_, outcome.loss))
        files_.warn("first_loss_differs", *info, run_.state.step);
    }
    run_.watch.step(run_.optimizer, outcome.stats.norms, outcome.lr_factor, run_.state.compute);
  }

  void note_skipped(const GlobalBatch& whole) {
    for (const std::string& skipped : whole.skipped) {
      files_.note("skipped a bad sample: " + skipped);
      files_.event("sample_skipped", run_.state.step + 1, {{"sample", skipped}});
      run_.skipped_samples.push_back(skipped);
    }
    if (!whole.skipped.empty()) check_bad_count(run_.data.encode, run_.skipped_samples);
  }

  void save() {
    const StepClock::Span span(clock_, &StepTimes::checkpoint_s);
    saves_.save();
  }

  /// False if a signal stopped it; every process then has that signal.
  bool evaluate() {
    const StepClock::Span span(clock_, &StepTimes::eval_s);
    at("the evaluation after step " + std::to_string(run_.state.step));
    if (has_held_out() && graphs_) graphs_->graphs().start_over();
    const bool done = evaluations_.evaluate();
    if (!done) signal_ = agreed_signal(ranks_);
    return done;
  }

  /// The evaluation after the last step, whose checkpoint is already saved, so that a crash does
  /// not lose the step; the checkpoint is then updated with the evaluation.
  bool evaluate_last() {
    run_.last_eval.due = has_held_out();
    if (!evaluate()) return false;
    if (has_held_out()) saves_.save_evaluated();
    return true;
  }

  int stop(int signal) {
    if (!ranks_.first()) return stop_exit_code(signal);
    save_outputs(run_);
    write_page(report::RunState::kStopped, /*answer=*/false);
    notice("stopped by a signal after step " + std::to_string(run_.state.step) +
           "; a checkpoint is saved, --resume continues from it" +
           (run_.last_eval.due ? " and first does the evaluation of this step, which is missing"
                               : ""));
    return stop_exit_code(signal);
  }

  /// Saves the run when a sample cannot be read.
  [[noreturn]] void stop_for_data(const Error& error) {
    const std::string step = std::to_string(run_.state.step);
    files_.event("stopped", run_.state.step, {{"reason", error.what()}});
    drop_passes();
    saves_.finish();
    save_outputs(run_);
    leave_page(error.what());
    ErrorInfo info = error.info();
    info.next +=
        (info.next.empty() ? "" : "\n") + ("step " + step) +
        " is saved. With the data as it was at the start, --resume continues from it; with "
        "fixed data, this run starts from it:\n  " +
        recipe::next_run_command(
            recipe_, "-on",
            {{"lora.init_from", recipe::value_text(path("checkpoints/step-" + step))}});
    throw Error(error.kind(), std::move(info));
  }

  /// `peak`: of the steps' memory.
  int finish(double peak) {
    if (!evaluations_.of_this_step() && !evaluate_last()) return stop(signal());
    peak_memory_.record(peak);
    evaluations_.tell_of_early_stop();
    evaluations_.look_at_images();
    evaluations_.go_back_to_best();
    try {
      const Phase phase("final check");
      check_trained(run_.model.model, run_.optimizer, probe_batch(run_), run_.state.compute);
    } catch (const Error& error) {
      files_.event("stopped", run_.state.step, {{"reason", error.what()}});
      throw;
    }
    if (!ranks_.first()) return 0;
    at("the report");
    evaluations_.tell_of_images();
    warn_unmoved();
    save_outputs(run_);
    if (!write_page(report::RunState::kDone, /*answer=*/true)) {
      notice(
          "stopped by a signal while it answered rows: the run is complete and saved, only its "
          "answers are missing from " +
          path("report.html") + ", and --resume writes them");
      return stop_exit_code(requested_signal());
    }
    const StepTimes rest = clock_.lap();
    files_.event("done", run_.state.step,
                 {{"saved_step", saved_step(run_)},
                  {"eval_s", rest.eval_s},
                  {"checkpoint_s", rest.checkpoint_s}});
    print_line("done       " + std::to_string(run_.state.step) + " steps in " +
               format_number(seconds_since(start_), "%.1f s") +
               (folder_goes_ ? "" : "; see " + recipe_.output_dir + "/report.html"));
    if (folder_goes_) return 0;
    for (const std::string& line : closing_lines(run_, evaluations_)) print_line(line);
    return 0;
  }

  void warn_unmoved() {
    if (const auto info = judge_learning(run_))
      files_.warn("nothing_learnt", *info, run_.state.step);
    for (const PairWarning& warning : judge_pairs(run_))
      files_.warn(warning.kind, warning.info, run_.state.step);
  }

  PageFacts facts() const {
    return {.eval_loss = evaluations_.loss(),
            .figures = evaluations_.figures(),
            .images = evaluations_.images()};
  }

  /// Not part of a step's time.
  void refresh_page() {
    if (!page_.due()) return;
    const StepClock::Span span(clock_, &StepTimes::checkpoint_s);
    page_.refresh(facts());
  }

  /// False if a signal interrupted the answers; the report then has none.
  bool write_page(report::RunState state, bool answer) {
    files_.write_warnings(run_.state.step);
    if (state == report::RunState::kDone) files_.ended(/*success=*/true);
    return page_.finish(facts(), state, answer);
  }

  /// The page of a run that ends with an error, which must not be hidden.
  void leave_page(const std::string& reason) noexcept {
    try {
      files_.write_warnings(run_.state.step);
      files_.ended(/*success=*/false);
      page_.finish(facts(), report::RunState::kFailed, /*answer=*/false, reason);
    } catch (const std::exception&) {  // the run's own error is reported
    }
  }

  /// Frees memory that passes keep from step to step.
  void drop_passes() {
    options_.passes = nullptr;
    graphs_.reset();
    run_.optimizer.drop_gradients();
  }

  bool has_held_out() const { return run_.data.eval != nullptr; }
  std::string path(const std::string& name) const { return recipe_.output_dir + "/" + name; }

  Run& run_;
  dist::Ranks& ranks_;
  RunMemory& memory_;
  const PeakMemory& peak_;
  const recipe::Recipe& recipe_;
  StepOptions options_;
  std::unique_ptr<GraphPasses> graphs_;  // null: none, or no longer
  const int64_t stop_after_step_;
  const std::function<void(int64_t, const data::StepSamples&)> part_done_;
  const bool folder_goes_;
  RunFiles files_;
  SavedSteps saved_;
  RunSaves saves_;
  Evaluations evaluations_;
  RunPage page_;
  StepNormRecords norms_;
  PeakRecord peak_memory_;
  std::optional<data::StepSamples> last_good_;
  int64_t last_good_step_ = 0;
  int signal_ = 0;           // agreed on by several processes
  int64_t ahead_bytes_ = 0;  // of tensors allocated in this step for the next
  Clock::time_point start_ = Clock::now();
  StepClock clock_;
};

}  // namespace

int run_steps(Run& run, RunMemory& memory, const PeakMemory& peak, const TrainOptions& options,
              uint64_t metrics_bytes, bool resumed) {
  return Trainer(run, memory, peak, options, metrics_bytes).run(resumed);
}

}  // namespace lft::train
