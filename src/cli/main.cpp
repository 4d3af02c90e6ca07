#include "src/cli/program.h"

int main(int argc, char** argv) { return lft::cli::run_program(argc, argv); }
