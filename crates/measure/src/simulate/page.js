'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const outcomes = [data.report, ...data.report.what_if];
  const get = (id) => document.getElementById(id);
  const most = 64; // loaders and places that are drawn

  // Rows are [loader, [begun, loaded, queued, taken, done], [copying, copied, decoding, decoded, stepping]] in
  // microseconds; null is after the end. Without a device, the last list is missing, and steps begin when batches are taken.
  const runs = data.traces.map((trace, number) => {
    const never = Infinity;
    const known = (times) => times.map((time) => (time === null ? never : time));
    const batches = trace.batches_us.map(([loader, times, device], batch) => {
      const [begun, loaded, queued, taken, done] = known(times);
      const [copying, copied, decoding, decoded, stepping] = device ? known(device) : [never, never, never, never, taken];
      return { batch, loader, begun, loaded, queued, taken, copying, copied, decoding, decoded, stepping, done };
    });
    const options = outcomes[number].options;
    const loaders = Array.from({ length: options.loaders }, () => []);
    for (const one of batches) if (one.begun !== never) loaders[one.loader].push(one);
    const sorted = (key) => batches.filter((one) => one[key] !== never).sort((a, b) => a[key] - b[key]);
    const steps = sorted('stepping');
    let busy = 0;
    for (const step of steps) {
      step.before = busy;
      busy += Math.min(step.done, trace.until_us) - step.stepping;
    }
    const stages = [];
    if (options.copy) stages.push({ name: 'link', begins: 'copying', ends: 'copied', times: options.copy });
    if (options.decode) stages.push({ name: 'decoder', begins: 'decoding', ends: 'decoded', times: options.decode });
    for (const stage of stages) stage.list = sorted(stage.begins);
    return { trace, options, batches, loaders, steps, stages, until: trace.until_us };
  });

  // The last of those, sorted by `key`, that began by `time`.
  const last = (list, key, time) => {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle][key] <= time) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  const seconds = (time) => (time / 1e6).toFixed(time < 1e7 ? 3 : 2) + ' s';
  const text = (id, words) => { const node = get(id); if (node.textContent !== words) node.textContent = words; };
  const worker = () => {
    const box = document.createElement('div');
    box.className = 'worker';
    box.append(document.createElement('i'), document.createElement('span'));
    return box;
  };
  const show = (box, kind, share, words) => {
    box.className = 'worker ' + kind;
    box.firstChild.style.width = (100 * Math.max(0, Math.min(1, share))).toFixed(2) + '%';
    if (box.lastChild.textContent !== words) box.lastChild.textContent = words;
  };

  // What a box shows of a batch that is in a stage of these mean times, or that it is idle.
  const work = (box, kind, one, [begins, ends], times, name) => {
    if (!one || one[ends] <= time) return show(box, '', 0, name + 'idle');
    // What has not ended by the end of the run has no known end: shown against the mean.
    const end = one[ends] === Infinity ? one[begins] + times.mean_s * 1e6 : one[ends];
    show(box, kind, (time - one[begins]) / (end - one[begins]), name + 'batch ' + (one.batch + 1));
  };
  const empty = () => {
    const place = document.createElement('div');
    place.className = 'place';
    return place;
  };
  const fill = (places, batches) => {
    places.forEach((place, at) => {
      const one = batches[at];
      place.className = one ? 'place full' : 'place';
      const words = one ? String(one.batch + 1) : '';
      if (place.textContent !== words) place.textContent = words;
    });
  };

  let run, boxes, places, slots, model, heads;
  let time = 0, playing = false, before = null;

  const choose = (number) => {
    const share = run ? time / run.until : 0;
    run = runs[number];
    boxes = run.loaders.slice(0, most).map(worker);
    get('loaders').replaceChildren(...boxes);
    places = Array.from({ length: Math.min(run.options.queue, most) }, empty);
    const none = document.createElement('div');
    none.className = 'place none';
    none.textContent = run.options.queue === 0 ? 'No queue: a loader holds its batch until it is taken.' : '';
    get('queue').replaceChildren(...(places.length ? places : [none]));
    text('queue-name', run.options.queue ? 'Queue, ' + run.options.queue + (run.options.queue === 1 ? ' place' : ' places') : 'Queue');
    slots = [];
    if (get('slots')) {
      const count = run.options.device_slots;
      text('device-name', count ? 'Device, ' + count + (count === 1 ? ' slot' : ' slots') : 'No device');
      for (const stage of run.stages) stage.box = worker();
      get('stages').replaceChildren(...run.stages.map((stage) => stage.box));
      slots = Array.from({ length: Math.min(count || 0, most) }, empty);
      get('slots').replaceChildren(...slots);
    }
    model = worker();
    get('model').replaceChildren(model);
    const notes = [];
    if (!run.trace.whole) notes.push('Shown are the first ' + run.batches.length + ' batches, ' + seconds(run.until) + ' of ' + seconds(outcomes[number].duration_s * 1e6) + '.');
    if (run.loaders.length > most) notes.push('Shown are the first ' + most + ' of ' + run.loaders.length + ' loaders.');
    if (run.options.queue > most) notes.push('Shown are the first ' + most + ' places of the queue.');
    text('note', notes.join(' '));
    document.querySelectorAll('.timeline').forEach((box, at) => { box.hidden = at !== number; });
    time = share * run.until;
    draw();
  };

  const draw = () => {
    boxes.forEach((box, loader) => {
      const list = run.loaders[loader];
      const one = list[last(list, 'begun', time)];
      if (!one) return show(box, '', 0, 'loader ' + (loader + 1));
      const holds = time >= one.loaded;
      // What is not loaded by the end has no known end: shown against the mean.
      const end = one.loaded === Infinity ? one.begun + run.options.load.mean_s * 1e6 : one.loaded;
      show(box, holds ? 'holds' : '', holds ? 1 : (time - one.begun) / (end - one.begun),
        (loader + 1) + (holds ? ': holds batch ' : ': loads batch ') + (one.batch + 1));
    });
    const queued = run.batches.filter((one) => one.queued <= time && time < one.taken);
    queued.sort((a, b) => (run.options.order === 'in-order' ? a.batch - b.batch : a.queued - b.queued));
    fill(places, queued);
    for (const { list, box, begins, ends, times, name } of run.stages) {
      work(box, begins, list[last(list, begins, time)], [begins, ends], times, name + ': ');
    }
    if (slots.length) {
      const first = run.stages[0].begins;
      fill(slots, run.batches.filter((one) => one[first] <= time && time < one.done).sort((a, b) => a[first] - b[first]));
    }
    const at = last(run.steps, 'stepping', time);
    const step = run.steps[at];
    const steps = step && time < step.done;
    work(model, 'steps', step, ['stepping', 'done'], run.options.step, '');
    const done = step ? at + (steps ? 0 : 1) : 0;
    const busy = step ? step.before + Math.min(time, step.done) - step.stepping : 0;
    text('now', seconds(time));
    text('done', String(done));
    text('rate', time > 0 ? (done / time * 1e6).toFixed(2) + ' /s' : '–');
    text('idle', time > 0 ? (100 * (1 - busy / time)).toFixed(1) + ' %' : '–');
    const share = run.until > 0 ? time / run.until : 0;
    const range = get('time');
    range.value = String(Math.round(share * 1000));
    range.setAttribute('aria-valuetext', seconds(time));
    const x = data.timeline[0] + (data.timeline[1] - data.timeline[0]) * share;
    for (const head of heads) { head.setAttribute('x1', x); head.setAttribute('x2', x); }
  };

  const frame = (now) => {
    if (!playing) return;
    if (before !== null) time += (now - before) * 1000 * Number(get('speed').value);
    before = now;
    if (time >= run.until) { time = run.until; play(false); }
    draw();
    if (playing) requestAnimationFrame(frame);
  };
  const play = (on) => {
    if (on && time >= run.until) time = 0;
    playing = on;
    before = null;
    text('play', on ? 'Pause' : 'Play');
    if (on) requestAnimationFrame(frame);
  };
  const go = (share) => { time = Math.max(0, Math.min(1, share)) * run.until; play(false); draw(); };

  heads = [...document.querySelectorAll('.timeline svg')].map((svg) => {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    line.setAttribute('class', 'playhead');
    line.setAttribute('y1', 60);
    line.setAttribute('y2', svg.viewBox.baseVal.height - 30);
    svg.append(line);
    svg.addEventListener('click', (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      go((x - data.timeline[0]) / (data.timeline[1] - data.timeline[0]));
    });
    return line;
  });
  get('play').addEventListener('click', () => play(!playing));
  get('time').addEventListener('input', (event) => go(event.target.value / 1000));
  if (get('run')) get('run').addEventListener('change', (event) => choose(Number(event.target.value)));
  document.addEventListener('keydown', (event) => {
    if (event.key === ' ' && !event.target.closest('button, select, input')) { event.preventDefault(); play(!playing); }
  });
  choose(0);
  // page.html#t=12.5 shows that second.
  const wanted = /^#t=([0-9.]+)$/.exec(location.hash);
  if (wanted) go(Number(wanted[1]) * 1e6 / run.until);
  else if (!matchMedia('(prefers-reduced-motion: reduce)').matches) play(true);
})();
