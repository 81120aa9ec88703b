// graphile-worker, with the settings of its own performance page: concurrentJobs 24, maxPoolSize 25, localQueue 500, no completion delay.
import { run, makeWorkerUtils, Logger } from 'graphile-worker';
import { start } from './common.mjs';

const c = start();
const preset = { worker: {
  connectionString: c.DSN, concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 },
  completeJobBatchDelay: 0, failJobBatchDelay: 0, logger: new Logger(() => () => {}),
} };
await c.main({
  async session() { this.utils = await makeWorkerUtils({ preset }); },
  async close() { await this.utils.release(); },
  async reset() { await this.session(); await this.utils.migrate(); await this.close(); },
  async enqueue(count) {
    for (let i = 0; i < count; i += c.BATCH) {
      const specs = [];
      for (let j = i; j < Math.min(count, i + c.BATCH); j++) specs.push({ identifier: 'noop', payload: c.payload(j) });
      await this.utils.addJobs(specs);
    }
  },
  async one(n) { await this.utils.addJob('noop', c.payload(n)); },
  async at(n, due) { await this.utils.addJob('noop', c.payload(n), { runAt: new Date(due * 1000) }); },
  async worker() {
    await c.gate();
    const runner = await run({ preset, taskList: { noop: async (payload) => { c.job(payload.n); } } });
    await runner.promise;
  },
});
