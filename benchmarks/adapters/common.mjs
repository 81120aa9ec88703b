// Shared by the node adapters; the words are those of common.py.
import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const now = () => (performance.timeOrigin + performance.now()) / 1000;

export function start() {
  const { BENCH_DIR: DIR, BENCH_DSN: DSN, BENCH_MODE: MODE = 'count' } = process.env;
  const BATCH = +(process.env.BENCH_BATCH || 5000), PAD = 'x'.repeat(+(process.env.BENCH_PAD || 180));
  let hits = 0, first = 0, counter = null, log = null;
  const flush = () => fs.writeSync(counter, `${String(hits).padStart(12)} ${first.toFixed(6)} ${now().toFixed(6)}\n`, 0);
  const say = (values) => console.log('RESULT ' + JSON.stringify(values));
  const sent = (pairs) => fs.writeFileSync(`${DIR}/sent.json`, JSON.stringify(pairs));
  const done = () => fs.readdirSync(DIR).filter((f) => f.endsWith('.cnt'))
    .reduce((n, f) => n + (parseInt(fs.readFileSync(`${DIR}/${f}`, 'utf8').slice(0, 12)) || 0), 0);
  return {
    DSN, BATCH,
    payload: (n) => (PAD ? { n, pad: PAD } : { n }),
    job(n) {
      if (MODE !== 'count') {
        log ??= fs.openSync(`${DIR}/${process.pid}.log`, 'a');
        fs.writeSync(log, `${n} ${now().toFixed(6)}\n`);
        return;
      }
      if (!hits) {
        first = now();
        counter = fs.openSync(`${DIR}/${process.pid}.cnt`, 'w');
        let seen = -1;
        setInterval(() => { if (seen !== hits) { seen = hits; flush(); } }, 10);
      }
      hits++;
    },
    async gate() {
      fs.writeFileSync(`${DIR}/ready.${process.pid}`, '');
      for (let i = 0; i < 30000 && !fs.existsSync(`${DIR}/go`); i++) await sleep(2);
    },
    async main(a) {
      const [word, ...numbers] = process.argv.slice(2);
      const [count, second] = numbers.map(Number);
      if (word === 'reset') { await a.reset(); process.exit(0); }
      if (word === 'worker') return a.worker();
      await a.session();
      if (word === 'enqueue') {
        const began = now();
        await a.enqueue(count);
        say({ secs: now() - began });
      } else if (word === 'single') {
        let n = 0;
        const caller = async () => { while (n < count) await a.one(n++); };
        const began = now();
        await Promise.all(Array.from({ length: second }, caller));
        say({ secs: now() - began });
      } else if (word === 'timed') {
        const pairs = [];
        let when = now() + 0.2;
        for (let i = 0; i < count; i++) {
          await sleep(Math.max(0, (when - now()) * 1000));
          when += second;
          await a.one(i);
          pairs.push([i, now()]);
        }
        sent(pairs);
      } else if (word === 'scheduled') {
        const begin = now() + (second ? 2 : Number(numbers[2]));
        const dues = Array.from({ length: count }, (_, i) => begin + (i + 0.37) * second / count);
        await Promise.all(dues.map((due, i) => a.at(i, due)));
        sent(dues.map((due, i) => [i, due]));
        say({ done_before_first: dues[0] - now() });
      } else if (word === 'feed') {
        let n = 0;
        while (!fs.existsSync(`${DIR}/stop`)) {
          if (n - done() < count) { await a.enqueue(500); n += 500; } else await sleep(5);
        }
      }
      await a.close();
      process.exit(0);
    },
  };
}
