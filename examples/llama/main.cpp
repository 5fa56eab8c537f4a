// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

int main(int argc, char** argv) { return terrace::runner::run("terrace-llama", argc, argv); }
