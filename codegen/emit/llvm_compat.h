/* llvm_compat.h: the LLVM C API as the code generator uses it.
 * The only place that knows LLVM version numbers; written for LLVM 19. No other file tests
 * LLVM_VERSION_MAJOR, and every file of codegen/ that needs LLVM includes this one. */
#ifndef SN_LLVM_COMPAT_H
#define SN_LLVM_COMPAT_H

#include <llvm-c/Analysis.h>
#include <llvm-c/BitReader.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Error.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/LLJITUtils.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>

#if LLVM_VERSION_MAJOR < 19
#error "Sinter needs LLVM 19 or newer"
#endif

/* The attribute of pointer parameters that the callee does not keep: nocapture until LLVM 20, later
 * `captures` with the value 0 (nothing is captured). */
#if LLVM_VERSION_MAJOR < 21
#define SN_LLVM_NOCAPTURE "nocapture"
#else
#define SN_LLVM_NOCAPTURE "captures"
#endif

/* The feature of 512-bit registers, which LLVM 22 and later takes for granted with AVX-512. */
#if LLVM_VERSION_MAJOR < 22
#define SN_LLVM_EVEX512 "+evex512"
#else
#define SN_LLVM_EVEX512 ""
#endif

#endif
