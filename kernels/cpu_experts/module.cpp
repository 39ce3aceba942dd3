// The module `engine`: addresses are integers here; op.py has checked what is behind them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <string>

#include "kernels/cpu_experts/cpu.h"
#include "kernels/cpu_experts/engine.h"
#include "kernels/cpu_experts/measure.h"

namespace py = pybind11;
using namespace moet::cpu;

namespace {

using Address = std::uintptr_t;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

int isa_of(const std::string& name) {
  if (name == "auto") return -1;
  for (int isa = 0; isa < kIsas; isa++)
    if (name == isa_name(static_cast<Isa>(isa))) return isa;
  throw py::value_error("isa is '" + name + "'; expected auto, scalar, avx2, avx512 or amx");
}

double seconds_of(Engine& engine, void (*task)(void*, int), void* context) {
  const auto start = std::chrono::steady_clock::now();
  engine.everywhere(task, context);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double read_seconds(Engine& engine, Address memory, std::size_t bytes, int ahead) {
  isa_table(kAvx2);
  struct Share {
    const std::uint8_t* memory;
    std::size_t bytes;
    int threads, ahead;
    std::atomic<std::uint64_t> sum;
  } share{at<std::uint8_t>(memory), bytes, engine.threads(), ahead, {0}};
  return seconds_of(
      engine,
      [](void* context, int thread) {
        auto& it = *static_cast<Share*>(context);
        it.sum += read_share(it.memory, it.bytes, thread, it.threads, it.ahead);
      },
      &share);
}

double dots_a_second(Engine& engine, const std::string& isa, int rows, std::int64_t rounds) {
  struct Work {
    int isa, rows;
    std::int64_t rounds;
    std::atomic<std::int64_t> count;
  } work{isa_of(isa), rows, rounds, {0}};
  if (work.isa < kAvx2) throw py::value_error("isa is '" + isa + "'; expected avx2, avx512 or amx");
  isa_table(static_cast<Isa>(work.isa));
  const double seconds = seconds_of(
      engine,
      [](void* context, int) {
        auto& it = *static_cast<Work*>(context);
        it.count += dot_products(it.isa, it.rows, it.rounds);
      },
      &work);
  return static_cast<double>(work.count) / seconds;
}

std::unique_ptr<Job> new_job(Engine& engine, Address x, Address ids, Address weights, Address out32, Address out16,
                             int tokens, int slots, int base) {
  auto job = std::make_unique<Job>();
  job->engine = &engine;
  job->x = at<std::uint16_t>(x);
  job->ids = at<std::int32_t>(ids);
  job->weights = at<float>(weights);
  job->out32 = at<float>(out32);
  job->out16 = at<std::uint16_t>(out16);
  job->tokens = tokens;
  job->slots = slots;
  job->base = base;
  job->status = kNotSubmitted;
  return job;
}

}  // namespace

PYBIND11_MODULE(engine, m) {
  m.attr("MAX_TOKENS") = kMaxTokens;
  m.attr("DONE") = static_cast<int>(kDone);
  m.attr("NO_RECORD") = static_cast<int>(kNoRecord);
  m.attr("BAD_SHAPE") = static_cast<int>(kBadShape);
  m.attr("FORKED") = static_cast<int>(kForked);
  m.attr("CLOSED") = static_cast<int>(kClosed);
  m.attr("NOT_SUBMITTED") = static_cast<int>(kNotSubmitted);
  m.attr("WAITING") = static_cast<int>(kWaiting);
  m.def(
      "isas",
      [] {
        std::vector<std::string> names;
        for (int isa = 0; isa < kIsas; isa++)
          if (isa_usable(static_cast<Isa>(isa))) names.emplace_back(isa_name(static_cast<Isa>(isa)));
        return names;
      },
      "Instruction sets that this CPU and system have.");
  m.def(
      "host_functions",
      [] {
        return std::make_tuple(reinterpret_cast<Address>(&moet_cpu_experts_submit),
                               reinterpret_cast<Address>(&moet_cpu_experts_wait),
                               reinterpret_cast<Address>(&moet_cpu_experts_run));
      },
      "Addresses of submit, wait and run: void (*)(void* job).");

  py::class_<Job, std::unique_ptr<Job>>(m, "Job")
      .def(py::init(&new_job), py::keep_alive<1, 2>())
      .def_property_readonly("address", [](Job& job) { return reinterpret_cast<Address>(&job); })
      .def_property_readonly("status", [](Job& job) { return job.status.load(); });

  py::class_<Engine>(m, "Engine")
      .def(py::init([](int hidden, int intermediate, int experts, int slots, int parts, float limit,
                       const std::string& isa, std::int64_t spin_ns, std::vector<int> cores,
                       std::vector<int> domains) {
        return std::make_unique<Engine>(Config{hidden, intermediate, experts, slots, parts, limit, isa_of(isa), spin_ns,
                                               std::move(cores), std::move(domains)});
      }))
      .def("set_record", [](Engine& engine, int expert, Address record) { engine.set_record(expert, at<std::uint8_t>(record)); })
      .def(
          "run", [](Engine&, Job& job) { moet_cpu_experts_run(&job); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "submit", [](Engine&, Job& job) { moet_cpu_experts_submit(&job); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "wait", [](Engine&, Job& job) { moet_cpu_experts_wait(&job); }, py::call_guard<py::gil_scoped_release>())
      .def("close", &Engine::close, py::call_guard<py::gil_scoped_release>())
      .def("isa_for", [](Engine& engine, int tokens) { return isa_name(engine.isa_for(tokens)); })
      .def_property_readonly("forked", &Engine::forked)
      .def("read_seconds", &read_seconds, py::call_guard<py::gil_scoped_release>())
      .def("dots_a_second", &dots_a_second, py::call_guard<py::gil_scoped_release>());
}
