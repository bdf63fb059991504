; A small library as a compiler for CUDA C++ would leave it: generic pointers, functions without a result. For the tests of extern_call.
@calls = internal addrspace(1) global i32 0

define float @weighted(float %a, float %b, i32 %n) {
  %f = sitofp i32 %n to float
  %m = fmul float %b, %f
  %s = fadd float %a, %m
  ret float %s
}

define double @weighted_wide(double %a, double %b, i32 %n) {
  %f = sitofp i32 %n to double
  %m = fmul double %b, %f
  %s = fadd double %a, %m
  ret double %s
}

define void @record(ptr %place, i32 %value) {
  %old = atomicrmw add ptr %place, i32 %value seq_cst
  ret void
}

define ptr @after(ptr %place, i64 %count) {
  %next = getelementptr i32, ptr %place, i64 %count
  ret ptr %next
}

define i32 @count_calls(i32 %step) noinline {
  %old = atomicrmw add ptr addrspacecast (ptr addrspace(1) @calls to ptr), i32 %step seq_cst
  ret i32 %old
}
