#define MOET_LOOPS portable
#include "tools/experts/native/loops.inl"

namespace moet::experts {

const Loops& portable_loops() { return portable::kLoops; }

}  // namespace moet::experts
