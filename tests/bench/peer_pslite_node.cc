// peer_pslite_node.cc - a node of ps-lite that does the rounds of `paramctl bench net': each worker pushes all tensors,
// the server averages the gradients and takes a step of SGD with momentum, and each worker pulls the new weights.
//
//     peer_pslite_node TENSORS FLOATS BATCH ROUNDS
//
// ps-lite reads the node's role from its environment (DMLC_ROLE). BATCH tensors share a message. All workers begin a
// round at once. The server answers a push at once, and a pull when the step was taken. The first worker prints the
// milliseconds of each of its rounds, after ROUNDS / 4 that are not counted. Built and started by peer_pslite.py.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace
{

const float kLr = 1e-3f, kMomentum = 0.9f;
const size_t kTile = 4096; // floats of a tile, which stays in the first-level cache

// The server's part of the tensors that share a message.
struct Batch {
    ps::KVPairs<float> weights;
    std::vector<float> momentum;
    std::vector<ps::SArray<float>> gradients; // of the round, in the buffers that they were received into
    std::vector<ps::KVMeta> pulls;            // that wait for the step
};

std::unordered_map<ps::Key, Batch> batches;

void Step(Batch *batch)
{
    const size_t n = batch->momentum.size();
    const float part = 1.0f / static_cast<float>(batch->gradients.size());
    float *weights = batch->weights.vals.data(), *momentum = batch->momentum.data(), sum[kTile];

    for (size_t first = 0; first < n; first += kTile) {
        const size_t some = std::min(kTile, n - first);
        std::fill(sum, sum + some, 0.0f);
        for (const auto &gradient : batch->gradients) {
            const float *from = gradient.data() + first;
            for (size_t i = 0; i < some; i++) sum[i] += from[i];
        }
        for (size_t i = 0; i < some; i++) {
            momentum[first + i] = kMomentum * momentum[first + i] + part * sum[i];
            weights[first + i] -= kLr * momentum[first + i];
        }
    }
    batch->gradients.clear();
}

void Handle(const ps::KVMeta &request, const ps::KVPairs<float> &data, ps::KVServer<float> *server)
{
    Batch &batch = batches[data.keys[0]];

    if (!request.push) {
        if (batch.gradients.empty())
            server->Response(request, batch.weights);
        else
            batch.pulls.push_back(request);
        return;
    }
    if (batch.momentum.empty()) {
        batch.momentum.resize(data.vals.size());
        batch.weights.keys.CopyFrom(data.keys);
        batch.weights.vals.resize(data.vals.size(), 0.0f);
        batch.weights.lens.CopyFrom(data.lens);
    }
    batch.gradients.push_back(data.vals);
    server->Response(request);
    if (batch.gradients.size() < static_cast<size_t>(ps::NumWorkers())) return;
    Step(&batch);
    for (const auto &pull : batch.pulls) server->Response(pull, batch.weights);
    batch.pulls.clear();
}

// A worker's part of the tensors that share a message.
struct Own {
    ps::SArray<ps::Key> keys;
    ps::SArray<int> lens;
    ps::SArray<float> gradients, weights;
};

std::vector<Own> Tensors(int tensors, int floats, int batch)
{
    std::vector<Own> all;

    for (int first = 0; first < tensors; first += batch) {
        const int n = std::min(batch, tensors - first);
        Own own;
        own.keys.resize(n);
        for (int i = 0; i < n; i++) own.keys[i] = first + i;
        own.lens.resize(n, floats);
        own.gradients.resize(static_cast<size_t>(n) * floats, static_cast<float>(ps::MyRank() + 1));
        own.weights.resize(own.gradients.size(), 0.0f);
        all.push_back(own);
    }
    return all;
}

double Round(ps::KVWorker<float> *worker, std::vector<Own> *tensors)
{
    std::vector<int> waits;

    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
    const auto begin = std::chrono::steady_clock::now();
    for (auto &own : *tensors) {
        waits.push_back(worker->ZPush(own.keys, own.gradients, own.lens));
        waits.push_back(worker->ZPull(own.keys, &own.weights, &own.lens));
    }
    for (int wait : waits) worker->Wait(wait);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void Work(int tensors, int floats, int batch, int rounds)
{
    ps::KVWorker<float> worker(0, 0);
    std::vector<Own> own = Tensors(tensors, floats, batch);
    float momentum = 0, weight = 0;

    for (int i = -rounds / 4; i < rounds; i++) {
        const double ms = Round(&worker, &own);
        momentum = kMomentum * momentum + static_cast<float>(ps::NumWorkers() + 1) / 2;
        weight -= kLr * momentum;
        if (i >= 0 && ps::MyRank() == 0) printf("%.3f\n", ms);
    }
    for (const auto &one : own)
        for (float value : one.weights)
            if (std::fabs(value - weight) > 1e-4f * std::fabs(weight)) {
                fprintf(stderr, "peer_pslite_node: expected the weight %g, got %g\n", weight, value);
                exit(1);
            }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s TENSORS FLOATS BATCH ROUNDS\n", argv[0]);
        return 2;
    }
    ps::Start(0);
    if (ps::IsServer()) {
        auto server = new ps::KVServer<float>(0);
        server->set_request_handle(Handle);
    }
    if (ps::IsWorker()) Work(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    ps::Finalize(0, true);
    return 0;
}
