// charge.mjs ORDER CENTS: one charge through the proxy at $ZABOR_PROXY, by the code
// of docs/proxy.md; prints its result as JSON, or the class of what it threw and its
// status.
import { readFileSync } from 'node:fs';

const page = readFileSync(new URL('../../../../docs/proxy.md', import.meta.url), 'utf8');
const [, code] = page.match(/^### Node\n\n```js\n(.*?)^```$/ms);
const AsyncFunction = (async () => {}).constructor;
const charge = new AsyncFunction('orderId', 'cents', 'declined',
  code.replaceAll('http://127.0.0.1:8070', process.env.ZABOR_PROXY) + `return [payment, response.headers.get('Zabor-Replayed')];`);
try {
  console.log(JSON.stringify(await charge(process.argv[2], Number(process.argv[3]), () => ['declined'])));
} catch (e) {
  console.log(JSON.stringify([e.constructor.name, Number(/^zabor: (\d+)/.exec(e.message)?.[1])]));
}
