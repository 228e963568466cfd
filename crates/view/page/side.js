// The picture beside the picture of the page: of the same array of another sample, or of another array of the same sample.
// Both show the same place. Of another sample, it has the same bands and stretch; another array has its own.

import { ArrayView, regionIn } from './arrays.js';
import { el } from './dom.js';
import { CubeImage } from './image.js';
import { Picture } from './picture.js';
import { mapScale } from './scale.js';

export class Side {
  /** @param {any} session  of the page @param {any} cube @param {string} key  identifies what is shown */
  constructor(session, cube, key) {
    this.cube = cube;
    this.key = key;
    this.session = session;
    /** Whether another array is shown. */
    this.differs = cube.array !== session.cube.array;
    /** Its pixels for a pixel of the page's array, along each axis. */
    this.factor = cube.factor / session.cube.factor;
    // Maps replace only the page's own picture.
    this.beside = true;
    this.view = this.differs ? new ArrayView(session.view, this.factor) : session.view;
    this.page = session.page;
    this.fail = session.fail;
    this.keys = session.keys;
    this.picture = new Picture(this);
    this.image = new CubeImage(this, () => this.#painted());
    this.scale = mapScale(this);
    this.scale.node.classList.add('other');
    this.picture.frame.classList.add('other');
    this.picture.frame.append(el('p', { class: 'whose' }, cube.name));
  }

  pin(region) { this.session.pin(regionIn(region, 1 / this.factor)); }
  point(at) { this.session.point(at, this); }

  #painted() {
    this.picture.frame.setAttribute('aria-busy', String(this.image.busy > 0));
    this.picture.draw();
    this.picture.look();
    this.scale.show();
    this.session.share();
  }

  stop() {
    this.image.stop();
    this.picture.stop();
    this.picture.frame.remove();
    this.scale.node.remove();
  }
}
