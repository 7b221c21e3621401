/*===- runtime/sluice.h - The C interface of stage modules ----------------===
 *
 * A stage module computes one stage: a run of consecutive layers. The runtime
 * gives it all memory; a module allocates nothing once it is bound. One
 * instance serves one stage on one rank and is called from one thread at a
 * time.
 *
 * Every function returns 0, or another number after writing a sentence to the
 * error it was given. A failure ends the run of all ranks. Functions may throw
 * (from C++): the runtime takes that as a failure too, and std::bad_alloc as
 * memory that is short.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SLUICE_RUNTIME_SLUICE_H
#define SLUICE_RUNTIME_SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or the meaning of a function below changes. */
#define SLUICE_MODULE_VERSION 10

/* What create may return where neither the module nor what it was given is at
 * fault but the machine: a library that is not there, memory that is short. */
#define SLUICE_ENVIRONMENT 3

#define SLUICE_NO_STAGE UINT32_MAX

/* What a stage's forward leaves for its backward. */
enum {
  SLUICE_RECOMPUTE_NONE = 0,      /* saved and kept */
  SLUICE_RECOMPUTE_SELECTIVE = 1, /* kept, of which recompute makes saved */
  SLUICE_RECOMPUTE_FULL = 2       /* checkpoint, of which it makes both */
};

typedef struct sluice_error {
  char message[256]; /* zero-terminated */
} sluice_error;

/* What the plan says of a stage. Strings live as long as the instance. */
typedef struct sluice_stage {
  uint32_t stage, stages;
  uint32_t rank, ranks;
  /* The replicas of the pipeline (data parallelism), of which this is one. */
  uint32_t replica, replicas;
  /* In a step, of all replicas together: each has as many. */
  uint32_t microbatches;
  /* Whether it has a backward; if not, the plan has no gradients, no optimizer
   * state and nothing saved of it, and only forward is called. */
  uint32_t trained;
  /* One of SLUICE_RECOMPUTE_…: where it is not none, every microbatch has a
   * call of recompute between forward and backward_input. */
  uint32_t recompute;
  /* The stages it takes activations from and gives them to, ascending. */
  const uint32_t *input_stages, *output_stages;
  uint32_t input_count, output_count;
  /* The stage that has a copy of a table of parameters of this one, which it is
   * tied to by that, and the bytes of the table's gradients: the first of the
   * gradients of both. SLUICE_NO_STAGE and 0 where there is none. */
  uint32_t tied_stage;
  uint64_t tied_bytes;
  /* How many ranks, of all replicas, sum the stage's gradients in place, as
   * 32-bit floats, after its last backward of a step and before optimizer_step;
   * 1 where the runtime sums nothing. A module with other gradients refuses. */
  uint32_t reduced_ranks;
  /* Where optimizer_parts is not 1, the parameters are cut into so many parts
   * of equal bytes, and those in sluice_state have just these bytes. The stage
   * keeps the optimizer's state of part optimizer_part alone, and its step
   * changes that part alone; the runtime then gathers all parts from the ranks
   * that have them. Where gradient_parts is not 1, it is as many: the
   * gradients, one for each parameter, are cut alike, and only those of the
   * same part are summed when the step is taken, the others are undefined. A
   * module that cannot refuses. */
  uint32_t optimizer_part, optimizer_parts, gradient_parts;
  /* Whether the stage keeps its part of the gradients alone (ZeRO 2): the
   * gradients in sluice_state are that part, and those of a microbatch, of all
   * parts, are in its calls. backward_input clears these before it adds to
   * them; backward_weight adds, and then the part that is kept to its own place
   * among them. The runtime then sums them over the ranks and leaves the
   * stage's part of that sum in the gradients of sluice_state. gradient_parts
   * is not 1 then. */
  uint32_t gradients_partitioned;
  /* Lines "key=value": the model's dimensions, the layers of the stage. */
  const char *description;
  /* Lines "key=value": the run section of the spec (data, steps, seed, …). */
  const char *run;
  /* Times that the plan was made with, in seconds; 0 where the plan counts
   * abstract units (the synthetic module then spends none). */
  double forward_seconds, backward_input_seconds, backward_weight_seconds;
  double recompute_seconds;
} sluice_stage;

/* Bytes that a stage needs. saved: per microbatch, from forward to
 * backward_input. kept: per microbatch, from forward to backward_weight. What
 * recompute makes, from there on. gradients: of all parts, also where only one
 * of them is kept. checkpoint: from forward to recompute, 0
 * where that is not full. output: of one microbatch at the stage's end; input:
 * at its start. */
typedef struct sluice_bytes {
  uint64_t parameters, gradients, optimizer;
  uint64_t workspace;
  /* Where gradients are clipped: for each tensor of the whole model the sum of
   * the squares of its gradients, as 64-bit floats. */
  uint64_t norms;
  uint64_t saved, kept, checkpoint;
  uint64_t input, output;
  /* Beside the plan: memory of the host that its device reaches, too. */
  uint64_t host;
} sluice_bytes;

/* A buffer of the plan's arena (256-byte aligned), at least as large as
 * sluice_bytes said; data is never null, bytes may be 0. */
typedef struct sluice_buffer {
  void *data;
  uint64_t bytes;
} sluice_buffer;

/* Memory that belongs to the stage for the whole run. The optimizer's state
 * and the parameters are initialised by the module in bind. Workspace and norms
 * may be those of other stages of the rank, too. */
typedef struct sluice_state {
  sluice_buffer parameters, gradients, optimizer, workspace, norms;
  sluice_buffer host;
} sluice_state;

/* One call for one microbatch. Arrays are in order of the other stage; they are
 * empty where a stage has no such neighbour. */
typedef struct sluice_call {
  uint64_t step;       /* from 0 */
  uint32_t microbatch; /* of all replicas: replica i of d has m/d of them from
                          i * m/d on, m of sluice_stage */
  uint32_t input_count, output_count;
  const sluice_buffer *inputs;  /* forward: read */
  const sluice_buffer *outputs; /* forward: written */
  const sluice_buffer
      *output_gradients; /* backward_input: read, output_count */
  const sluice_buffer
      *input_gradients; /* backward_input: written, input_count */
  /* What the stage's recompute is not to make is written by forward; where a
   * call has nothing to do with one of these, its bytes are 0. */
  sluice_buffer saved;      /* forward or recompute writes, backward_input
                               reads */
  sluice_buffer kept;       /* forward or recompute writes, backward_input may
                               write, backward_weight reads; a recompute that
                               is selective reads it */
  sluice_buffer checkpoint; /* forward writes, recompute reads */
  sluice_buffer gradients;  /* where sluice_stage says gradients_partitioned:
                               backward_input writes, backward_weight adds */
  void *stream;             /* of the backend; null on the host */
} sluice_call;

/* Ranges that an optimizer keeps of a tensor at most. */
#define SLUICE_MAX_STATES 4

/* A tensor of the parameters, in the model's own order. What the optimizer
 * keeps of it goes into checkpoints with it: with both and the number of the
 * step, any stage that has the tensor can go on. All lie where the host reaches
 * them: of a stage on a device they are copies, which hold until the next
 * begin_step; what is written to them before the first one counts. */
typedef struct sluice_tensor {
  const char *name;  /* unique in the model, "block.3.attention.qkv.weight" */
  uint64_t position; /* in the model, the same wherever the stage's cut lies */
  void *data;
  uint64_t bytes;
  sluice_buffer states[SLUICE_MAX_STATES];
  uint32_t state_count; /* 0 where the stage is not trained, or keeps a part
                           of its optimizer */
} sluice_tensor;

typedef struct sluice_module {
  uint32_t version; /* SLUICE_MODULE_VERSION */
  const char *name;
  int (*create)(const sluice_stage *stage, void **instance,
                sluice_error *error);
  int (*bytes)(void *instance, sluice_bytes *bytes, sluice_error *error);
  /* Takes the memory and initialises parameters and optimizer state. */
  int (*bind)(void *instance, const sluice_state *state, sluice_error *error);
  /* Before the first operation of a step on any stage of the rank: clears
   * gradients and norms. */
  int (*begin_step)(void *instance, uint64_t step, sluice_error *error);
  int (*forward)(void *instance, const sluice_call *call, sluice_error *error);
  /* Makes what forward has not left, with the same parameters; a loss does not
   * count again. Null where the module cannot: a plan whose stages recompute is
   * refused then. */
  int (*recompute)(void *instance, const sluice_call *call,
                   sluice_error *error);
  /* Gradients by the inputs; then by the weights, added to the gradients. A
   * fused backward is the two calls one after the other. */
  int (*backward_input)(void *instance, const sluice_call *call,
                        sluice_error *error);
  int (*backward_weight)(void *instance, const sluice_call *call,
                         sluice_error *error);
  /* Adds the gradients that another rank has summed for its copy of the stage:
   * after the last backward of a step, before optimizer_step. Both ranks add
   * the other's, so the sum must not depend on the order of the two. */
  int (*add_gradients)(void *instance, const sluice_buffer *other, void *stream,
                       sluice_error *error);
  /* Where the plan clips gradients, of one of the ranks that hold the stage:
   * writes the norms of its tensors, once its gradients are whole; those of all
   * other stages stay 0. `tied` as below; of the tied table itself only one of
   * the two stages writes the norm. The runtime then sums the norms of all
   * ranks in place, before optimizer_step. */
  int (*norm_gradients)(void *instance, const sluice_buffer *tied, void *stream,
                        sluice_error *error);
  /* tied: the tied gradients as the other stage has summed them, to be added to
   * the stage's own; null where it is tied to none. Both stages take the same
   * step, so the sum must not depend on the order of the two. */
  int (*optimizer_step)(void *instance, uint64_t step,
                        const sluice_buffer *tied, void *stream,
                        sluice_error *error);
  /* Mean loss of the step's microbatches so far; sets *has to 0 on a stage
   * without loss. */
  int (*loss)(void *instance, double *loss, int *has, sluice_error *error);
  /* Number of tensors, and the n-th; used to save, and to load after bind. */
  uint32_t (*tensor_count)(void *instance);
  int (*tensor)(void *instance, uint32_t index, sluice_tensor *tensor,
                sluice_error *error);
  void (*destroy)(void *instance);
} sluice_module;

/* What a shared library given to --module exports. */
typedef const sluice_module *(*sluice_module_entry_fn)(void);
#define SLUICE_MODULE_ENTRY "sluice_module_entry"

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_RUNTIME_SLUICE_H */
