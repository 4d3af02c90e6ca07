// The program lft after its start.
#pragma once

namespace lft::cli {

/// Runs the command of the arguments of main() and returns the exit status. Errors are printed.
int run_program(int argc, char** argv);

}  // namespace lft::cli
