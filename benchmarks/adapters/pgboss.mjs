// pg-boss: batches of 1000, localConcurrency 2, burst when a batch is full, LISTEN/NOTIFY on.
import { PgBoss } from 'pg-boss';
import { start } from './common.mjs';

const c = start();
const make = (options = {}) => {
  const boss = new PgBoss({ connectionString: c.DSN, max: 10, ...options });
  boss.on('error', (error) => console.error(error.message));
  return boss;
};
await c.main({
  async session() { this.boss = make({ supervise: false, schedule: false }); await this.boss.start(); },
  async close() { await this.boss.stop({ graceful: false }); },
  async reset() { await this.session(); await this.boss.createQueue('noop', { notify: true }); await this.close(); },
  async enqueue(count) {
    for (let i = 0; i < count; i += c.BATCH) {
      const jobs = [];
      for (let j = i; j < Math.min(count, i + c.BATCH); j++) jobs.push({ data: c.payload(j) });
      await this.boss.insert('noop', jobs);
    }
  },
  async one(n) { await this.boss.send('noop', c.payload(n)); },
  async at(n, due) { await this.boss.send('noop', c.payload(n), { startAfter: new Date(due * 1000) }); },
  async worker() {
    const boss = make({ useListenNotify: true });
    await c.gate();
    await boss.start();
    const options = { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work('noop', options, async (jobs) => { for (const job of jobs) c.job(job.data.n); });
  },
});
